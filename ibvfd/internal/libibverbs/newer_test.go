// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/dl"
)

// newer builds a double of a library, with all the functions that are looked up under the
// versions of load_cgo.go and mlx5_cgo.go: those that the double has not end the program.
func newer(t *testing.T, name, source string, without []string, flags ...string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler: %v", err) // this test binary was built by one
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	double, err := os.ReadFile("testdata/newer.c")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	versions, rest := map[string][]string{}, ""
	for _, m := range regexp.MustCompile(`\{"(\w+)", "((?:IBVERBS|MLX5)_[\d.]+)"`).FindAllSubmatch(text, -1) {
		f := string(m[1])
		if slices.Contains(without, f) {
			rest += fmt.Sprintf("#define %s %s_that_is_absent\n", f, f)
			continue
		}
		versions[string(m[2])] = append(versions[string(m[2])], f)
		if !regexp.MustCompile(`\b` + f + `\(`).Match(double) {
			rest += fmt.Sprintf("void %s(void) { __builtin_trap(); }\n", f)
		}
	}
	script := "ALWAYS { local: nothing; };\n"
	for version, names := range versions {
		script += version + " { global: " + strings.Join(names, "; ") + "; };\n"
	}
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	lib := filepath.Join(dir, name)
	abi, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"-shared", "-fPIC", "-Wall", "-Werror", "-I", abi, "-Wl,-soname," + name, "-Wl,--version-script," + write("map", script),
		"-o", lib, "-x", "c", write("all.c", rest+string(double)),
	}, flags...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	return lib
}

// doubled is a PD of a double of libibverbs.
func doubled(t *testing.T, without ...string) PD {
	t.Helper()
	lib, err := loadFrom(newer(t, soname, "load_cgo.go", without))
	if err != nil {
		t.Fatal(err)
	}
	c, err := lib.Open("double0")
	if err != nil {
		t.Fatal(err)
	}
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	return pd
}

const (
	refused = 90 // REFUSED of testdata/newer.c
	bad     = 91 // BAD
)

type answer struct {
	call               string
	lkey, rkey, handle uint32
	err                error
}

func answerOf(mr MR, err error) answer {
	if err != nil {
		return answer{err: err}
	}
	a := answer{call: mr.Call()}
	a.lkey, a.rkey, a.handle = mr.Keys()
	a.err = mr.Dereg()
	return a
}

// A library that has ibv_reg_mr_ex registers dma-bufs by it. If its provider lacks the
// operation, ibv_reg_dmabuf_mr registers them; any other refusal is the answer.
func TestRegMREx(t *testing.T) {
	pd, older := doubled(t), doubled(t, "ibv_reg_mr_ex", "ibv_alloc_buf")
	for _, c := range []struct {
		name string
		pd   PD
		fd   int
		want answer
	}{
		{"newer", pd, 5, answer{"ibv_reg_mr_ex", 7, 0x1000 + 0x200 + 0x30, 5, nil}},
		{"no such operation of the provider", pd, refused, answer{"ibv_reg_dmabuf_mr", 7, 0x1230, 2, nil}},
		{"refused", pd, bad, answer{err: unix.EBADF}},
		{"older library", older, 5, answer{"ibv_reg_dmabuf_mr", 7, 0x1230, 2, nil}},
	} {
		if got := answerOf(c.pd.RegDMABuf(0x1000, 0x200, 0x30, c.fd, 7)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got, want := answerOf(pd.RegHost(0x1000, 0x200, 0x1000, 7)), (answer{"ibv_reg_mr", 7, 0x200, 1, nil}); got != want {
		t.Errorf("host memory: %+v, want %+v", got, want)
	}
	if _, err := older.AllocBuf(4096); !errors.Is(err, unix.ENOSYS) {
		t.Errorf("ibv_alloc_buf of an older library: %v", err)
	}
}

func TestAllocBuf(t *testing.T) {
	pd := doubled(t)
	first, err := pd.AllocBuf(4096)
	if err != nil {
		t.Fatal(err)
	}
	second, err := pd.AllocBuf(8192)
	if err != nil {
		t.Fatal(err)
	}
	if len(second.Bytes()) != 8192 || second.Bytes()[8191] != 0xff {
		t.Errorf("%d bytes", len(second.Bytes()))
	}
	start := hostmem.AddrOf(second.Bytes())
	if got, want := answerOf(pd.RegBuf(second, start+16, 32, 3)), (answer{"ibv_reg_buf_mr", 3, 48, 2, nil}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := answerOf(pd.RegBuf(second, start, 8193, 3)); !errors.Is(got.err, unix.EINVAL) {
		t.Errorf("beyond the buffer: %+v", got)
	}
	first.Free()
	if got := answerOf(pd.RegBuf(second, start, 1, 3)); got.handle != 1 {
		t.Errorf("%d buffers after one was freed", got.handle)
	}
	second.Free()
}

// mlx5's library is asked for its DMA function, and registers by it.
func TestDataDirect(t *testing.T) {
	// It is found by its soname from then on.
	if _, err := dl.Open(newer(t, mlx5Name, "mlx5_cgo.go", nil, "-DMLX5")); err != nil {
		t.Fatal(err)
	}
	pd := doubled(t)
	path, err := pd.(*libPD).ctx.DataDirect()
	if err != nil || path != "/sys/devices/pci0008:00/0008:03:00.0" {
		t.Errorf("%q, %v", path, err)
	}
	if got, want := answerOf(pd.RegDataDirect(0x1000, 0x200, 0x30, 5, 7)), (answer{"mlx5dv_reg_dmabuf_mr", 7, 0x1230, 5<<8 | 1, nil}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := answerOf(pd.RegDataDirect(0, 4096, 0, bad, 7)); !errors.Is(got.err, unix.EBADF) {
		t.Errorf("%+v", got)
	}
	if m, err := loadMLX5(newer(t, "libmlx5-older.so", "mlx5_cgo.go", []string{"mlx5dv_reg_dmabuf_mr", "mlx5dv_get_data_direct_sysfs_path"}, "-DMLX5")); err != nil || m.reg_dmabuf_mr != nil {
		t.Errorf("an older libmlx5: %v, %v", m, err)
	}
}
