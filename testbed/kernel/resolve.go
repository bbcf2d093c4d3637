// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/apt"
)

// set is what makes up one series: packages of one version.
type set struct {
	Release string
	Image   apt.Package
	Headers []apt.Package // headers, their common part, kbuild
	Source  apt.Package
}

func (s set) all() []apt.Package {
	return append(append([]apt.Package{s.Image}, s.Headers...), s.Source)
}

// inputs identifies the set: one line a package, after the layout version.
func (s set) inputs() string {
	var b strings.Builder
	b.WriteString(layoutLine() + "\n")
	for _, p := range s.all() {
		fmt.Fprintf(&b, "%s %s %s\n", p.Name, p.Version, p.SHA256)
	}
	return b.String()
}

// archive is the part of apt that resolving needs.
type archive interface {
	Show(ctx context.Context, name, version string) (apt.Package, error)
	Names(ctx context.Context, prefix string) ([]string, error)
}

// metaPackages are the packages that follow a series, in the order tried. The
// plain one follows the release's own series, so its dependency is checked.
func metaPackages(series string) []string {
	return []string{"linux-image-" + series + "-amd64", "linux-image-amd64"}
}

// resolve finds the newest image of a series through its meta-package, then
// headers and source of exactly that version.
func resolve(ctx context.Context, a archive, series string) (set, error) {
	image, err := imageName(ctx, a, series)
	if err != nil {
		return set{}, err
	}
	return setOf(ctx, a, series, image)
}

// resolveOlder finds the newest image of which the archive has everything. An archive
// that gets an update offers its packages one by one, over days: a new kbuild
// package takes the place of the one that the newest image's headers need.
func resolveOlder(ctx context.Context, a archive, series string) (set, error) {
	names, err := a.Names(ctx, "linux-image-"+series+".")
	if err != nil {
		return set{}, err
	}
	var images []apt.Package
	for _, name := range names {
		if !imageOf(series).MatchString(name) {
			continue
		}
		p, err := a.Show(ctx, name, "")
		if err != nil {
			return set{}, err
		}
		images = append(images, p)
	}
	slices.SortFunc(images, func(x, y apt.Package) int { return Compare(y.Version, x.Version) })
	for _, image := range images {
		s, err := setOf(ctx, a, series, image.Name)
		if !errors.Is(err, apt.ErrNotFound) {
			return s, err
		}
	}
	return set{}, fmt.Errorf("no kernel image of series %s has headers and source of its own version: %w", series, apt.ErrNotFound)
}

// imageOf matches the images of a series that are for every machine: not those
// of the cloud or real-time flavours, without a signature, or of debug symbols.
func imageOf(series string) *regexp.Regexp {
	return regexp.MustCompile(`^linux-image-` + regexp.QuoteMeta(series) + `\.\d+(\+deb\d+)?(-\d+)?-amd64$`)
}

// setOf is an image with headers and source of exactly its version.
func setOf(ctx context.Context, a archive, series, image string) (set, error) {
	s := set{Release: strings.TrimPrefix(image, "linux-image-")}
	var err error
	if s.Image, err = a.Show(ctx, image, ""); err != nil {
		return s, err
	}
	version := s.Image.Version

	same := func(name string) (apt.Package, error) {
		p, err := a.Show(ctx, name, version)
		if errors.Is(err, apt.ErrNotFound) {
			have := "the archive has none"
			if other, err := a.Show(ctx, name, ""); err == nil {
				have = "the archive offers " + other.Version
			}
			return p, fmt.Errorf("the kernel image %s has version %s, but there is no %s of that version (%s): "+
				"the archive is between two updates, run `apt-get update` or try again later: %w", image, version, name, have, err)
		}
		return p, err
	}
	headers, err := same("linux-headers-" + s.Release)
	if err != nil {
		return s, err
	}
	s.Headers = []apt.Package{headers}
	for _, dep := range headers.Depends {
		if strings.HasPrefix(dep, "linux-kbuild-") || strings.HasPrefix(dep, "linux-headers-") && strings.HasSuffix(dep, "-common") {
			p, err := same(dep)
			if err != nil {
				return s, err
			}
			s.Headers = append(s.Headers, p)
		}
	}
	if len(s.Headers) != 3 {
		return s, fmt.Errorf("linux-headers-%s %s does not depend on exactly one common headers and one kbuild package: %v", s.Release, version, headers.Depends)
	}
	s.Source, err = same("linux-source-" + series)
	return s, err
}

// imageName follows the meta-packages of a series to its image package.
func imageName(ctx context.Context, a archive, series string) (string, error) {
	var seen []string
	for _, meta := range metaPackages(series) {
		p, err := a.Show(ctx, meta, "")
		if errors.Is(err, apt.ErrNotFound) {
			seen = append(seen, "no "+meta)
			continue
		}
		if err != nil {
			return "", err
		}
		for _, dep := range p.Depends {
			if strings.HasPrefix(dep, "linux-image-"+series+".") && strings.HasSuffix(dep, "-amd64") {
				return dep, nil
			}
		}
		seen = append(seen, fmt.Sprintf("%s %s depends on %s", meta, p.Version, strings.Join(p.Depends, ", ")))
	}
	return "", fmt.Errorf("no kernel image of series %s in apt's package lists (%s): %w", series, strings.Join(seen, "; "), apt.ErrNotFound)
}
