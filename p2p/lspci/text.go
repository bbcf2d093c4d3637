// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Limits of a text: more than lspci prints of any machine.
const (
	byteLimit     = 64 << 20
	lineLimit     = 2_000_000
	widthLimit    = 16 << 10 // of a line, in bytes
	functionLimit = 10_000
	depthLimit    = 32 // bridges above a function
)

// Command is the command whose output has everything that Parse understands.
const Command = "sudo lspci -vvvnn -D"

// TreeCommand is the command whose output ParseTree reads.
const TreeCommand = "lspci -tv"

// ErrFormat is the error for a text that is not lspci's, or that exceeds a limit.
var ErrFormat = errors.New("not what lspci prints")

// refuse says what is wrong, and which command prints what was expected.
func refuse(command, format string, args ...any) error {
	return fmt.Errorf("%w: %s; expected the output of `%s`", ErrFormat, fmt.Sprintf(format, args...), command)
}

// eachLine calls f with each line, numbered from 1. whole is false for a last line without a line feed: the
// text may be cut off inside it.
func eachLine(r io.Reader, command string, f func(n int, line string, whole bool) error) error {
	limited := &io.LimitedReader{R: r, N: byteLimit + 1}
	buffered := bufio.NewReaderSize(limited, widthLimit)
	for n := 1; ; n++ {
		data, err := buffered.ReadSlice('\n')
		end := errors.Is(err, io.EOF)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return refuse(command, "line %d is longer than %d KiB", n, widthLimit>>10)
		case err != nil && !end:
			return err
		case limited.N == 0:
			return refuse(command, "it is larger than %d MiB", byteLimit>>20)
		case end && len(data) == 0:
			return nil
		case n > lineLimit:
			return refuse(command, "it has more than %d lines", lineLimit)
		}
		line := string(data)
		if n == 1 {
			if err := begins(command, line); err != nil {
				return err
			}
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.IndexByte(line, 0) >= 0 {
			return refuse(command, "line %d has a byte of 0, which no text has (UTF-16 has them: save it as UTF-8)", n)
		}
		line, whole := strings.CutSuffix(line, "\n")
		if err := f(n, strings.TrimRight(line, "\r"), whole); err != nil || end {
			return err
		}
	}
}

// begins refuses files of other programs by how they begin.
func begins(command, line string) error {
	switch {
	case strings.HasPrefix(line, "\x1f\x8b"), strings.HasPrefix(line, "["):
		return refuse(command, "it begins as a snapshot or a dump of rdma_topo does, which --snapshot takes")
	case !utf8.ValidString(line) && strings.IndexByte(line, 0) < 0:
		return refuse(command, "it does not begin with text")
	}
	return nil
}

// others recognizes texts that users give in place of lspci's, by one line of each.
var others = []struct {
	line *regexp.Regexp
	what string
}{
	{regexp.MustCompile(`^(Slot|Device):\t[0-9a-f:.]+$`), "it is of lspci -vmm: leave out -m"},
	{regexp.MustCompile(`^[0-9a-f:.]+ "`), "it is of lspci -mm: leave out -m"},
	{regexp.MustCompile(`^\s*\S{0,6}GPU0\S*\s+(\S{0,6}GPU1|NIC0|CPU Affinity|X\s)`), "it is of nvidia-smi topo -m, which has no PCI functions"},
	{treeRoot, "it is of lspci -t, the tree: give that beside the other text, by --lspci-tree"},
}

// other names the program that printed a line, if it is one of others; "" if not.
func other(line string) string {
	for _, o := range others {
		if o.line.MatchString(line) {
			return o.what
		}
	}
	return ""
}
