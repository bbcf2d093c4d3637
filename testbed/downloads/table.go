// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// Print prints the manifest of a build directory as a table. The error is ErrNone if
// there is none.
func Print(w io.Writer, build string) error {
	items, err := Read(filepath.Join(build, ManifestFile))
	if errors.Is(err, os.ErrNotExist) || err == nil && len(items) == 0 {
		return fmt.Errorf("%w: run `make setup`, or any other target that downloads, such as `make fetch`", ErrNone)
	}
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tNAME\tVERSION\tARCH\tFROM\tBYTES\tSHA-256\tFOR")
	var size int64
	before := 0
	for _, i := range items {
		from := cmp.Or(strings.Trim(i.Suite+"/"+i.Component, "/"), "-")
		if i.Preinstalled {
			from += " *"
			before++
		} else {
			size += i.Size
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", i.Kind, i.Name, i.Version, cmp.Or(i.Architecture, "-"),
			from, i.Size, cmp.Or(i.SHA256, "-"), strings.Join(i.For, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d downloads, %.1f MB", len(items)-before, float64(size)/1e6)
	if err == nil && before > 0 {
		_, err = fmt.Fprintf(w, "; * marks %d that the machine had before", before)
	}
	if err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
}
