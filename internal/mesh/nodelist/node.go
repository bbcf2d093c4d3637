// SPDX-License-Identifier: Apache-2.0

package nodelist

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Node is a node's address.
type Node struct {
	Host string // a name or an address, as the list has it
	Port string // a number
}

// Addr returns "host:port".
func (n Node) Addr() string { return net.JoinHostPort(n.Host, n.Port) }

// Parse reads words, each of which is HOST, HOST:PORT, an IPv6 address, [IPv6]:PORT, or a hostlist of
// Slurm's with or without :PORT. port is that of a word without one. It refuses a node that is named twice,
// and a list with loopback addresses beside others: a loopback address means another machine on each node.
func Parse(words []string, port string) (nodes []Node, err error) {
	there := map[Node]bool{}
	loopback, other := "", ""
	for _, word := range words {
		if len(word) > maxText {
			return nil, fmt.Errorf("a word of %d bytes, of at most %d", len(word), maxText)
		}
		list, err := parseWord(word, port)
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if there[n] {
				return nil, fmt.Errorf("%s is named twice", n.Addr())
			}
			there[n] = true
			if Loopback(n.Host) {
				loopback = n.Host
			} else {
				other = n.Host
			}
			if nodes = append(nodes, n); len(nodes) > MaxNodes {
				return nil, fmt.Errorf("more than %d nodes", MaxNodes)
			}
		}
	}
	if loopback != "" && other != "" {
		return nil, fmt.Errorf("%s means another machine on %s than here: name each node by an address that all nodes reach", loopback, other)
	}
	return nodes, nil
}

// Loopback reports whether a host is a loopback address or localhost.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func parseWord(word, port string) ([]Node, error) {
	if ip, err := netip.ParseAddr(word); err == nil {
		return []Node{{ip.String(), port}}, nil
	}
	if strings.HasPrefix(word, "[") { // an IPv6 address: a hostlist begins with a name
		host, p, err := net.SplitHostPort(word)
		if err != nil {
			return nil, fmt.Errorf("%q is no node: write HOST, HOST:PORT or [IPv6]:PORT", human.Short(word, 80))
		}
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return nil, fmt.Errorf("%q is no node: %q is no IPv6 address", human.Short(word, 80), human.Short(host, 60))
		}
		return []Node{{ip.String(), p}}, checkPort(word, p)
	}
	names, err := Expand(word)
	if err != nil {
		return nil, err
	}
	var list []Node
	for _, name := range names {
		n := Node{name, port}
		if host, p, found := strings.Cut(name, ":"); found {
			n = Node{host, p}
		}
		if err := checkHost(n.Host); err != nil {
			return nil, err
		}
		if err := checkPort(name, n.Port); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// checkHost refuses what is no name of a host.
func checkHost(host string) error {
	bad := strings.IndexFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
	})
	if host == "" || len(host) > maxName || bad >= 0 || host[0] == '-' {
		return fmt.Errorf("%q is no host: a name has letters, digits, dots, - and _, and up to %d bytes", human.Short(host, 80), maxName)
	}
	return nil
}

func checkPort(word, port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q: %q is no port: write a number of 1 to 65535", human.Short(word, 80), human.Short(port, 20))
	}
	return nil
}

// Read reads a file of nodes: words on lines, as Parse takes them. # begins a comment.
func Read(r io.Reader) (words []string, err error) {
	in := bufio.NewScanner(io.LimitReader(r, maxText+1))
	in.Buffer(nil, maxText+2)
	n := 0
	for in.Scan() {
		if n += len(in.Bytes()) + 1; n > maxText {
			return nil, fmt.Errorf("the list of nodes has more than %d bytes", maxText)
		}
		line, _, _ := strings.Cut(in.Text(), "#")
		words = append(words, strings.Fields(line)...)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("the list of nodes is empty")
	}
	return words, nil
}
