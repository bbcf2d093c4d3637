// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

const zeroGID = "0000:0000:0000:0000:0000:0000:0000:0000"

// ReadGIDs returns the entries of a port's GID table that are in use, without VLANs. sys is
// the root of sysfs, "" for /sys.
func ReadGIDs(sys, name string, port int) ([]GID, error) { return gids(sysfs.New(sys), name, port) }

func gids(s sysfs.FS, name string, port int) ([]GID, error) {
	dir := portDir(name, port)
	entries, err := s.List(path.Join(dir, "gids"))
	if err != nil {
		return nil, err
	}
	// Of a thousand places a few are in use: the way to them is looked up once.
	table := s.Path(path.Join(dir, "gids"))
	at, err := files.OpenDir(table)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	list := []GID{}
	for _, e := range entries {
		index, err := strconv.Atoi(e)
		if err != nil {
			continue
		}
		// A place that is not in use is zero, or cannot be read.
		text, err := attr(at.ReadFile(e))
		if err != nil || text == zeroGID {
			continue
		}
		gid, err := parseGID(text, nil)
		if err != nil {
			continue
		}
		list = append(list, describeGID(s, dir, index, gid))
	}
	return list, nil
}

func portDir(name string, port int) string {
	return path.Join(classDir, name, "ports", strconv.Itoa(port))
}

// ReadGID reads one entry of a port's GID table. An entry that is not in use has a GID of
// zeros.
func ReadGID(sys, name string, port, index int) (GID, error) {
	s := sysfs.New(sys)
	dir := portDir(name, port)
	gid, err := parseGID(readAttr(s, path.Join(dir, "gids", strconv.Itoa(index))))
	if err != nil {
		return GID{}, err
	}
	return describeGID(s, dir, index, gid), nil
}

func parseGID(text string, err error) (gid [16]byte, _ error) {
	if err != nil {
		return gid, err
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(raw) != len(gid) {
		return gid, fmt.Errorf("%q is not a GID", text)
	}
	copy(gid[:], raw)
	return gid, nil
}

// describeGID adds an entry's type and network device.
func describeGID(s sysfs.FS, dir string, index int, gid [16]byte) GID {
	g := GID{Index: index, GID: gid, Type: GIDUnknown}
	place := strconv.Itoa(index)
	switch text, _ := readAttr(s, path.Join(dir, "gid_attrs/types", place)); text {
	case "IB/RoCE v1":
		g.Type = GIDInfiniBand
		if link, _ := readAttr(s, path.Join(dir, "link_layer")); link == linkLayerNames[LinkEthernet] {
			g.Type = GIDRoCEv1
		}
	case "RoCE v2":
		g.Type = GIDRoCEv2
	}
	g.NetDev, _ = readAttr(s, path.Join(dir, "gid_attrs/ndevs", place))
	return g
}

// readAttr reads a short attribute.
func readAttr(s sysfs.FS, name string) (string, error) {
	return attr(files.ReadFile(s.Path(name)))
}

// attr is an attribute's text.
func attr(text []byte, err error) (string, error) {
	return strings.TrimRight(string(text), " \t\n\x00"), err
}
