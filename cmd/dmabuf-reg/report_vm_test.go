// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/report"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// reportDoc is a report as its reader would take it.
type reportDoc struct {
	Schema  string
	Machine struct{ Kernel string }
	Devices struct {
		Allocators []struct {
			Spec      string
			Aliases   []string
			Available bool
			PCI       string
		}
		NICs []struct {
			Name     string
			NodeGUID string `json:"node_guid"`
			Ports    []struct{ GIDs []struct{ GID string } }
		}
		NVIDIA []struct{ UUID, PCI string }
	}
	Verify struct {
		Rows []struct {
			Spec, NIC string
			OK        bool
			Placement *struct{ Memory string }
			Located   *struct{ Says string }
		}
	}
}

// A host's name that nothing else has in it.
const rackName = "rack7-node42"

// onHost runs the command on a host of that name.
func (r *run) onHost() *run {
	r.Args = append([]string{"unshare", "--uts", "sh", "-c", "hostname " + rackName + ` && exec "$0" "$@"`}, append([]string{r.Path}, r.Args[1:]...)...)
	r.Path = "/usr/bin/unshare"
	return r
}

// identities are what this machine is known by, by our own reading.
func identities(t *testing.T) []string {
	t.Helper()
	out := []string{rackName}
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		out = append(out, i.HardwareAddr.String(), strings.ReplaceAll(i.HardwareAddr.String(), ":", ""))
		addrs, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			ip, _, _ := strings.Cut(a.String(), "/")
			out = append(out, ip)
		}
	}
	for _, pattern := range []string{
		"/sys/class/infiniband/*/node_guid", "/sys/class/infiniband/*/sys_image_guid", "/sys/class/infiniband/*/ports/*/gids/*",
		"/sys/class/dmi/id/*_serial", "/sys/class/dmi/id/product_uuid", "/etc/machine-id", "/proc/sys/kernel/random/boot_id",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err == nil { // the command cannot print a file that cannot be read
				out = append(out, strings.TrimSpace(string(text)))
			}
		}
	}
	return slices.DeleteFunc(out, func(s string) bool {
		return len(s) < 6 || strings.Trim(s, "0:") == "" || !strings.ContainsAny(s, "0123456789") // "None", and an empty GID
	})
}

// unsaid fails the test if the file has any of the words.
func unsaid(t *testing.T, data []byte, words []string) {
	t.Helper()
	text := strings.ToLower(string(data))
	for _, w := range words {
		if strings.Contains(text, strings.ToLower(w)) {
			t.Errorf("the report has %q", w)
		}
	}
}

// A report has every pair with a placement, and nothing that names the machine: no UUID
// of a GPU of any vendor, and no name in the output of a program that was run or in an
// error.
//
//testbed:kernel 6.12
func TestVMReport(t *testing.T) {
	testenv.VM(t)
	knobs := []string{"DOUBLE_DEVICES=1", "DOUBLE_PCI=0000:d1:00.0", "GPURDMA_NVML_PCI=0000:d1:00.0"}
	known := identities(t)
	seen := parse[reportDocDevices](t, printed(t, command(t, "devices", "--json").withDoubles(t, knobs...)))
	var uuids []string
	for _, a := range seen.Result.Allocators {
		for _, name := range a.Aliases {
			if strings.Count(name, "-") >= 4 || strings.Contains(name, "GPU-") {
				uuids = append(uuids, name)
			}
		}
	}
	for _, g := range seen.Result.NVIDIA {
		uuids = append(uuids, g.UUID)
	}
	// cuda:0 and its vmm by two names each, rocm and ze by two, NVML's two GPUs.
	if len(uuids) != 10 {
		t.Fatalf("%d UUIDs: %q", len(uuids), uuids)
	}
	for _, u := range slices.Clone(uuids) {
		_, id, _ := strings.Cut(u, ":")
		uuids = append(uuids, strings.TrimSuffix(id, "/vmm"))
	}
	uuids = slices.DeleteFunc(uuids, func(u string) bool { return u == "" })
	known = append(known, uuids...)

	dir := t.TempDir()
	path, tattler := filepath.Join(dir, "report.json"), filepath.Join(dir, "tattler")
	says := "on " + strings.Join(known, ", ") + " it is not"
	if err := os.WriteFile(tattler, []byte("#!/bin/sh\necho '"+says+"'\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := command(t, "verify", "--all-pairs", "--size", "64KiB", "--case", "whole buffer", "--report", path, "--locate", tattler, "--json").
		withDoubles(t, knobs...).onHost()
	if status := r.do(t); status != 0 {
		t.Fatalf("status %d: %s%s", status, &r.out, &r.err)
	}
	for _, name := range []string{rackName, uuids[0]} {
		if !strings.Contains(r.out.String(), name) {
			t.Errorf("the command itself does not say %q, so that the report has nothing to hide", name)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unsaid(t, data, known)
	got := aReport(t, data)
	ready := 0
	for _, a := range got.Devices.Allocators {
		if a.Available {
			ready++
		}
		if a.Spec == "cuda:0" && !slices.Equal(a.Aliases, []string{"cuda:0000:d1:00.0"}) {
			t.Errorf("%s is also %q", a.Spec, a.Aliases)
		}
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	if got.Schema != report.Schema || got.Machine.Kernel != unix.ByteSliceToString(u.Release[:]) || ready < 2+4 || len(got.Verify.Rows) != ready*len(got.Devices.NICs) || len(got.Devices.NICs) == 0 {
		t.Errorf("%d rows of %d allocators and %d NICs: %s", len(got.Verify.Rows), ready, len(got.Devices.NICs), data)
	}
	located := 0
	for _, row := range got.Verify.Rows {
		if !row.OK || row.Placement == nil {
			t.Errorf("%s with %s: ok %v, placement %v", row.Spec, row.NIC, row.OK, row.Placement)
		}
		if row.Located != nil {
			located++
			if !strings.HasPrefix(row.Located.Says, "on -, -") || !strings.HasSuffix(row.Located.Says, "- it is not") {
				t.Errorf("%s: %q", row.Spec, row.Located.Says)
			}
		}
	}
	if located == 0 {
		t.Error("the program was never run")
	}
}

type reportDocDevices struct {
	Allocators []struct {
		Spec    string
		Aliases []string
	}
	NVIDIA []struct{ UUID string }
}

// printed is what a command that must succeed prints.
func printed(t *testing.T, r *run) []byte {
	t.Helper()
	if status := r.do(t); status != 0 {
		t.Fatalf("status %d: %s%s", status, &r.out, &r.err)
	}
	return r.out.Bytes()
}

// A GPU that was asked for by its UUID has its other name in the report; one that is
// not there has none, in the row and in the error.
//
//testbed:kernel 6.12
func TestVMReportOfAUUID(t *testing.T) {
	testenv.VM(t)
	const there, missing = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-deadbeef-0405-0607-0809-0a0b0c0d0e0f"
	for _, c := range []struct {
		spec   string
		status int
		row    string
	}{{"cuda:" + there, 0, "cuda:0"}, {there + "/vmm", 0, "cuda:0/vmm"}, {"cuda:" + missing, 3, "cuda:-"}} {
		path := filepath.Join(t.TempDir(), "report.json")
		r := command(t, "verify", "--gpu", c.spec, "--size", "64KiB", "--case", "whole buffer", "--report", path).withDoubles(t)
		if status := r.do(t); status != c.status {
			t.Errorf("%s: status %d: %s%s", c.spec, status, &r.out, &r.err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		unsaid(t, data, []string{there, missing})
		got := aReport(t, data)
		if len(got.Verify.Rows) != 1 || got.Verify.Rows[0].Spec != c.row {
			t.Errorf("%s: rows %+v", c.spec, got.Verify.Rows)
		}
	}
}

// aReport is the file of --report, which is as its schema says.
func aReport(t *testing.T, data []byte) (got reportDoc) {
	t.Helper()
	if err := errors.Join(json.Unmarshal(data, &got), schemas.Check("dmabuf-reg/report", data)); err != nil {
		t.Fatal(err)
	}
	return got
}
