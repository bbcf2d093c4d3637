// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// hostileCopies make something of a copy that a reader has to be careful with. outside is a file beside the copy.
var hostileCopies = map[string]func(root, outside string) error{
	"a pipe in place of each file": func(root, _ string) error {
		return eachFile(root, func(name string) error { return unix.Mkfifo(name, 0o600) })
	},
	"a socket in place of each file": func(root, _ string) error {
		return eachFile(root, func(name string) error {
			// The address has room for 108 bytes: it is made elsewhere, and moved.
			at := filepath.Join(root, "s")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			if err := l.Close(); err != nil {
				return err
			}
			return os.Rename(at, name)
		})
	},
	"each file a link to /dev/zero": func(root, _ string) error {
		return eachFile(root, func(name string) error { return os.Symlink("/dev/zero", name) })
	},
	"each file a link to a file of the host": func(root, outside string) error {
		return eachFile(root, func(name string) error { return os.Symlink(outside, name) })
	},
	"each file a link up and out": func(root, outside string) error {
		return eachFile(root, func(name string) error {
			return os.Symlink(strings.Repeat("../", 60)+strings.TrimPrefix(outside, "/"), name)
		})
	},
	"each file a link through its own process": func(root, outside string) error {
		return eachFile(root, func(name string) error { return os.Symlink("/proc/self/root"+outside, name) })
	},
	"each file a terabyte of nothing": func(root, _ string) error {
		return eachFile(root, func(name string) error {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(name, 1<<40)
		})
	},
	"each file just below the limit of its kind": func(root, _ string) error {
		return eachFile(root, func(name string) error {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(name, 64<<10)
		})
	},
	"links in a circle": func(root, _ string) error {
		return eachFile(root, func(name string) error {
			return os.Symlink("../"+filepath.Base(filepath.Dir(name))+"/"+filepath.Base(name), name)
		})
	},
	"a directory of 200,000 devices": func(root, _ string) error {
		dir := filepath.Join(root, "sys/bus/pci/devices")
		for i := range 200_000 {
			if err := os.Symlink("x", filepath.Join(dir, strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	},
	"60,000 RDMA devices": func(root, _ string) error {
		for i := range 60_000 {
			if err := os.Mkdir(filepath.Join(root, "sys/class/infiniband", strconv.Itoa(i)), 0o700); err != nil {
				return err
			}
		}
		return nil
	},
	"100 devices of 100 ports of 100 addresses by links": func(root, _ string) error {
		class := filepath.Join(root, "sys/class/infiniband")
		real, err := filepath.EvalSymlinks(filepath.Join(class, "mlx5_0"))
		if err != nil {
			return err
		}
		var errs []error
		link := func(to, name string) { errs = append(errs, os.Symlink(to, name)) }
		for i := 2; i < 102; i++ {
			link(strings.Replace(real, root, "", 1), filepath.Join(class, fmt.Sprint("mlx5_", i)))
			link("1", filepath.Join(real, "ports", fmt.Sprint(i)))
			link("0", filepath.Join(real, "ports/1/gids", fmt.Sprint(100+i)))
			link("0", filepath.Join(real, "ports/1/gid_attrs/ndevs", fmt.Sprint(100+i)))
		}
		return errors.Join(errs...)
	},
	"1,000 nodes of a GPU driver with 1,000 links each, by links": func(root, _ string) error {
		nodes := filepath.Join(root, "sys/class/kfd/kfd/topology/nodes")
		first := filepath.Join(nodes, "0/io_links/0")
		errs := []error{os.MkdirAll(first, 0o700), os.WriteFile(filepath.Join(first, "properties"), []byte("type 2\n"), 0o600), os.WriteFile(filepath.Join(nodes, "0/gpu_id"), []byte("7\n"), 0o600)}
		for i := 1; i < 1000; i++ {
			errs = append(errs, os.Symlink("0", filepath.Join(nodes, fmt.Sprint(i))), os.Symlink("0", filepath.Join(nodes, "0/io_links", fmt.Sprint(i))))
		}
		return errors.Join(errs...)
	},
	"an environment of all words of three letters": func(root, _ string) error {
		var b bytes.Buffer
		b.WriteString("NCCL_IB_HCA=")
		for i := range 26 * 26 * 26 {
			fmt.Fprintf(&b, "%c%c%c,", 'a'+i/676, 'a'+i/26%26, 'a'+i%26)
		}
		return os.WriteFile(filepath.Join(root, "proc/self/environ"), b.Bytes(), 0o600)
	},
	"30,000 modules": func(root, _ string) error {
		for i := range 30_000 {
			if err := os.Mkdir(filepath.Join(root, "sys/module", fmt.Sprintf("m%dx", i)), 0o700); err != nil {
				return err
			}
		}
		return nil
	},
	"a configuration of a million options": func(root, _ string) error {
		var b bytes.Buffer
		for i := 0; b.Len() < 15<<20; i++ {
			fmt.Fprintf(&b, "CONFIG_%d=y\n", i)
		}
		return os.WriteFile(filepath.Join(root, "boot/config-7.2.12+deb13-amd64"), b.Bytes(), 0o600)
	},
	"a configuration that grows when it is unpacked": func(root, _ string) error {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := io.CopyN(z, endless("CONFIG_A=y\n"), 1<<30); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, "proc/config.gz"), b.Bytes(), 0o600)
	},
	"a log of many records": func(root, _ string) error {
		f, err := os.Create(filepath.Join(root, "dev/kmsg"))
		if err != nil {
			return err
		}
		_, err = io.CopyN(f, endless("4,1,2,-;NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus\n"), 48<<20)
		if err2 := f.Close(); err == nil {
			err = err2
		}
		return err
	},
	"symbols without an end": func(root, _ string) error {
		if err := os.Remove(filepath.Join(root, "boot/config-7.2.12+deb13-amd64")); err != nil {
			return err
		}
		name := filepath.Join(root, "proc/kallsyms")
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		_, err = io.CopyN(f, endless("ffffffff81000000 T x\n"), 60<<20)
		if err2 := f.Close(); err == nil {
			err = err2
		}
		return err
	},
	"a library of 15 MiB of names": func(root, _ string) error {
		text := strings.Repeat("/a/lib%s-rdmav34.so\x00", 15<<20/20)
		return os.WriteFile(filepath.Join(root, "usr/lib64/libibverbs.so.1.14.50.0"), []byte(text), 0o600)
	},
	"an environment of a million variables": func(root, _ string) error {
		return os.WriteFile(filepath.Join(root, "proc/self/environ"), bytes.Repeat([]byte("NCCL_IB_HCA=mlx5\x00"), 15<<20/17), 0o600)
	},
	"a line of mounts that is long": func(root, _ string) error {
		return os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), bytes.Repeat([]byte("24 1 0:22 / /proc/x rw - tmpfs tmpfs rw\n"), 15<<20/40), 0o600)
	},
	"a command line of 15 MiB": func(root, _ string) error {
		return os.WriteFile(filepath.Join(root, "proc/cmdline"), bytes.Repeat([]byte("pci=noats "), 15<<20/10), 0o600)
	},
}

// endless repeats a text.
func endless(text string) io.Reader {
	return &repeated{text: strings.Repeat(text, 1000)}
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

// eachFile removes each regular file below a directory, and calls f.
func eachFile(root string, f func(name string) error) error {
	return filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if err := os.Remove(name); err != nil {
			return err
		}
		return f(name)
	})
}

// Bounds of a run on a hostile copy, by what can be counted: about twice what the worst one spends.
var copyBounds = spent{Peak: 64 << 20, Allocated: 2 << 30, Reads: 300_000, Read: 400 << 20}

// A copy of a machine cannot make p2pcheck wait, read what is not in the copy, or take much work or memory.
func TestHostileCopies(t *testing.T) {
	testenv.Exhaustive(t)
	const secret = "5ecre7 of the host"
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, make := range hostileCopies {
		t.Run(what, func(t *testing.T) {
			root := testenv.Machines["small-hgx"]().Write(t)
			if err := make(root, outside); err != nil {
				t.Fatal(err)
			}
			archive := filepath.Join(t.TempDir(), "archive")
			for _, args := range [][]string{{"-v", "--root", root}, {"topo", "--root", root}, {"--sysfs", filepath.Join(root, "sys"), "--proc", filepath.Join(root, "proc")}, {"snapshot", archive, "--root", root}} {
				out, state, spent := runMeasured(t, args...)
				if bytes.Contains(out, []byte(secret)) {
					t.Errorf("%q prints a file of the host", args)
				}
				took := state.UserTime() + state.SystemTime()
				t.Logf("%s: %v, %v, %d bytes", args[0], spent, took.Round(time.Millisecond), len(out))
				if spent.above(copyBounds) {
					t.Errorf("%q: %v, where the bounds are %v", args, spent, copyBounds)
				}
			}
			if data, err := os.ReadFile(archive); err == nil && strings.Contains(members(t, archive), secret) {
				t.Errorf("a snapshot of %d bytes has a file of the host", len(data))
			}
		})
	}
}
