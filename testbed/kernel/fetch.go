// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/apt"
	"github.com/gpurdma/gpurdma/testbed/downloads"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

// Fetch makes the newest kernel of a series that apt offers the cached one.
// Nothing is downloaded when it is that already. A failed or interrupted
// fetch leaves the cache as it was. logf reports progress.
func Fetch(ctx context.Context, t layout.Tree, series string, a *apt.Apt, logf func(string, ...any)) (Kernel, error) {
	if err := known(t, series); err != nil {
		return Kernel{}, err
	}
	if !slices.Contains(own, series) {
		return fetchNewer(ctx, t, series)
	}
	unlock, err := lock(filepath.Join(t.Build, "kernels"), series)
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	removeStale(t, series)

	cached, err := Open(t, series)
	if err != nil {
		cached = Kernel{} // none
	}
	s, err := resolve(ctx, a, series)
	if errors.Is(err, apt.ErrNotFound) {
		logf("refreshing apt's package lists: %v", err)
		s, err = refreshed(ctx, a, series, err, logf)
	}
	if err != nil {
		return Kernel{}, err
	}
	if cached.Version != "" && Compare(cached.Version, s.Image.Version) > 0 {
		logf("Linux %s (%s), fetched before, stays: the archive lacks packages of it now", cached.Release, cached.Version)
		return cached, nil
	}
	if cached.Version != "" && readString(filepath.Join(cached.Dir, "inputs")) == s.inputs() {
		return cached, nil
	}

	logf("fetching Linux %s (%s) with headers and source", s.Release, s.Image.Version)
	debs, err := download(ctx, t, a, s)
	if err != nil && ctx.Err() == nil {
		// An archive that has moved on refuses the versions of old lists.
		logf("refreshing apt's package lists: %v", err)
		if s, err = refreshed(ctx, a, series, err, logf); err == nil {
			debs, err = download(ctx, t, a, s)
		}
	}
	if err != nil {
		return Kernel{}, err
	}
	if err := install(ctx, t, series, a, s, debs); err != nil {
		return Kernel{}, err
	}
	return Open(t, series)
}

// refreshed is resolve with new package lists, after the error why. If the archive does not have all of
// the newest kernel, it is the newest of which it has.
func refreshed(ctx context.Context, a *apt.Apt, series string, why error, logf func(string, ...any)) (set, error) {
	if err := a.Update(ctx); err != nil {
		return set{}, fmt.Errorf("%w; %w", why, err)
	}
	s, err := resolve(ctx, a, series)
	if !errors.Is(err, apt.ErrNotFound) {
		return s, err
	}
	older, oerr := resolveOlder(ctx, a, series)
	if oerr != nil {
		return set{}, fmt.Errorf("%w; %w", err, oerr)
	}
	logf("%v; an older one is complete: %s (%s)", err, older.Release, older.Image.Version)
	return older, nil
}

// download fetches every package of the set; the result is keyed by name.
func download(ctx context.Context, t layout.Tree, a *apt.Apt, s set) (map[string]string, error) {
	debs := map[string]string{}
	for _, p := range s.all() {
		deb, err := a.Download(ctx, t.Downloads(), p)
		if err != nil {
			return nil, err
		}
		debs[p.Name] = deb
	}
	return debs, nil
}

// install unpacks the set beside the cache and then puts it in place in one
// step.
func install(ctx context.Context, t layout.Tree, series string, a *apt.Apt, s set, debs map[string]string) error {
	stage, err := os.MkdirTemp(filepath.Join(t.Build, "kernels"), "stage-"+series+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if err := os.Chmod(stage, 0o755); err != nil {
		return err
	}
	image, headers := filepath.Join(stage, "image"), filepath.Join(stage, "headers")
	if err := a.Unpack(ctx, debs[s.Image.Name], image); err != nil {
		return err
	}
	// Debian runs depmod when it installs a kernel, so the package has no
	// modules.dep.
	if err := command(ctx, "depmod", "-b", image, s.Release); err != nil {
		return err
	}
	for _, p := range s.Headers {
		if err := a.Unpack(ctx, debs[p.Name], headers); err != nil {
			return err
		}
	}
	if err := relocateHeaders(headers, s.Release); err != nil {
		return err
	}
	tarball := filepath.Join("usr", "src", "linux-source-"+series+".tar.xz")
	if err := unpackOne(ctx, debs[s.Source.Name], tarball, filepath.Join(stage, "source.tar.xz")); err != nil {
		return err
	}
	lists, err := downloads.Lists(ctx)
	if err != nil {
		return err
	}
	items, err := downloads.Debs(ctx, lists, "kernel "+series, slices.Sorted(maps.Values(debs)))
	if err != nil {
		return err
	}
	if err := downloads.WriteRecord(filepath.Join(stage, downloads.RecordFile), items); err != nil {
		return err
	}
	for name, text := range map[string]string{"release": s.Release + "\n", "version": s.Image.Version + "\n", "inputs": s.inputs()} {
		if err := os.WriteFile(filepath.Join(stage, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return replace(stage, t.Kernel(series))
}

// absoluteInclude is how Debian's headers name their common part.
var absoluteInclude = regexp.MustCompile(`(?m)^include /usr/src/(linux-headers-[^/\s]+-common)/Makefile$`)

// relocateHeaders makes unpacked headers usable where they lie, and adds the
// link kdir, which is what `make -C` wants.
func relocateHeaders(dir, release string) error {
	kdir := filepath.Join("usr", "src", "linux-headers-"+release)
	makefile := filepath.Join(dir, kdir, "Makefile")
	b, err := os.ReadFile(makefile)
	if err != nil {
		return err
	}
	if !absoluteInclude.Match(b) {
		return fmt.Errorf("%s: does not include the common headers' Makefile as expected", makefile)
	}
	b = absoluteInclude.ReplaceAll(b, []byte("include $$(dir $$(realpath $$(lastword $$(MAKEFILE_LIST))))../$1/Makefile"))
	if err := os.WriteFile(makefile, b, 0o644); err != nil {
		return err
	}
	mods := filepath.Join(dir, "lib", "modules", release)
	for _, name := range []string{"build", "source"} {
		link := filepath.Join(mods, name)
		to, err := os.Readlink(link)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.Remove(link); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join("..", "..", "..", strings.TrimPrefix(to, "/")), link); err != nil {
			return err
		}
	}
	return os.Symlink(kdir, filepath.Join(dir, "kdir"))
}

// unpackOne extracts a single file of a .deb.
func unpackOne(ctx context.Context, deb, name, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	pack := exec.CommandContext(ctx, "dpkg", "--fsys-tarfile", deb)
	tar := exec.CommandContext(ctx, "tar", "-xOf", "-", "./"+filepath.ToSlash(name))
	if tar.Stdin, err = pack.StdoutPipe(); err != nil {
		return err
	}
	tar.Stdout, tar.Stderr = f, os.Stderr
	if err := pack.Start(); err != nil {
		return err
	}
	if err := tar.Run(); err != nil {
		pack.Wait()
		return fmt.Errorf("extracting %s from %s: %w", name, filepath.Base(deb), err)
	}
	if err := pack.Wait(); err != nil {
		return fmt.Errorf("reading %s: %w", filepath.Base(deb), err)
	}
	return f.Close()
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is not installed: run `make setup`: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// staleAfter is how long a download may take at most.
const staleAfter = 2 * time.Hour

// removeStale removes what a fetch that was killed has left: unpacked trees of
// this series, whose lock we hold, and abandoned downloads.
func removeStale(t layout.Tree, series string) {
	stages, _ := filepath.Glob(filepath.Join(t.Build, "kernels", "stage-"+series+"-*"))
	partial, _ := filepath.Glob(filepath.Join(t.Downloads(), "partial-*"))
	for _, p := range partial {
		if fi, err := os.Stat(p); err == nil && time.Since(fi.ModTime()) > staleAfter {
			stages = append(stages, p)
		}
	}
	for _, s := range stages {
		os.RemoveAll(s)
	}
}

// replace puts the directory stage in the place of dir, which may exist.
func replace(stage, dir string) error {
	err := os.Rename(stage, dir)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	// After the exchange, stage is the old directory: the caller removes it.
	if err := unix.Renameat2(unix.AT_FDCWD, stage, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchanging %s and %s: %w", stage, dir, err)
	}
	return nil
}

// lock serializes work on one series between processes.
func lock(dir, series string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock-"+series), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

func readString(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}
