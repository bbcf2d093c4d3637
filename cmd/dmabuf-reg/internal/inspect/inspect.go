// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/bytesize"
)

// Result is what `inspect` found.
type Result struct {
	PID     int      `json:"pid"`     // the process that was asked for; 0: the whole system
	Buffers []Buffer `json:"buffers"` // the dma-bufs, by inode
	// Unknown are the files and processes that could not be read: buffers may be missing from the
	// list.
	Unknown []string `json:"unknown"`
}

// Buffer is a dma-buf with its holders. Without any, the kernel
// holds it: an MR, a scan-out, an importing driver.
type Buffer struct {
	dmabuf.Usage
	// Attached are the devices that imported the buffer, as debugfs names them; null where debugfs
	// could not be read.
	Attached []string `json:"attached"`
}

// Command is `inspect`.
func Command(a *app.App) *cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "List the dma-bufs of a process or of the whole system, with their holders",
		Long: `List dma-bufs with inode, exporter, name, size and the processes that hold them
through a descriptor or a mapping. For the whole system, with debugfs mounted,
this includes buffers that only a driver holds, such as one whose descriptor was
closed after it was registered, and the devices attached to each.

An ordinary user can look at his own processes only. The output lists processes that
could not be read. If --pid names such a process, the command fails.`,
		Args: cli.NoArgs,
	}
	cmd.Flags().IntVar(&pid, "pid", 0, "this process only (default: all)")
	cmd.RunE = a.Action(func(context.Context) (app.Result, error) {
		if pid < 0 || cmd.Flags().Changed("pid") && pid == 0 {
			return nil, &cli.UsageError{Err: fmt.Errorf("--pid %d is no process", pid)}
		}
		return inspectBuffers(pid)
	})
	return cmd
}

func inspectBuffers(pid int) (app.Result, error) {
	found, unreadable, err := dmabuf.Inventory("", pid)
	if pid != 0 && errors.Is(err, fs.ErrNotExist) {
		return nil, &cli.Unavailable{Err: err}
	}
	if err != nil {
		return nil, err
	}
	r := &Result{PID: pid, Buffers: []Buffer{}, Unknown: []string{}}
	for _, e := range unreadable {
		r.Unknown = append(r.Unknown, e.Error())
	}
	if pid == 0 {
		unreadable = nil // one of many: no failure
	}
	for _, u := range found {
		r.Buffers = append(r.Buffers, Buffer{Usage: u})
	}
	kernel, err := dmabuf.KernelBufs("")
	if err != nil {
		r.Unknown = append(r.Unknown, "buffers that only a driver holds: "+err.Error())
	} else {
		r.addKernel(kernel)
	}
	return r, errors.Join(unreadable...)
}

// addKernel adds what the kernel's own list knows: attachments, and for the
// whole system the buffers that no process holds.
func (r *Result) addKernel(kernel []dmabuf.KernelBuf) {
	for _, k := range kernel {
		attached := append([]string{}, k.Attached...)
		i := slices.IndexFunc(r.Buffers, func(b Buffer) bool { return b.Inode == k.Inode })
		switch {
		case i >= 0:
			b := &r.Buffers[i]
			b.Attached = attached
			if b.Size < 0 { // only mappings are left
				b.Size, b.Exporter, b.Count = k.Size, k.Exporter, k.Count
			}
		case r.PID == 0:
			r.Buffers = append(r.Buffers, Buffer{
				Usage:    dmabuf.Usage{Inode: k.Inode, Exporter: k.Exporter, Name: k.Name, Size: k.Size, Count: k.Count, Holders: []dmabuf.Owner{}},
				Attached: attached,
			})
		}
	}
	slices.SortFunc(r.Buffers, func(a, b Buffer) int { return cmp.Compare(a.Inode, b.Inode) })
}

// Text implements app.Result.
func (r *Result) Text(w io.Writer) error {
	rows := [][]string{{"INODE", "EXPORTER", "NAME", "SIZE", "HELD BY", "ATTACHED DEVICES"}}
	var total int64
	for _, b := range r.Buffers {
		size := "unknown"
		if b.Size >= 0 {
			size = bytesize.Format(b.Size)
			total += b.Size
		}
		rows = append(rows, []string{strconv.FormatUint(b.Inode, 10), b.Exporter, b.Name, size, b.holders(), strings.Join(b.Attached, ", ")})
	}
	empty := "No dma-buf exists."
	if r.PID != 0 {
		empty = fmt.Sprintf("Process %d holds no dma-buf.", r.PID)
	}
	if len(r.Unknown) > 0 {
		empty = "No dma-buf was found."
	}
	if err := app.Table(w, rows, nil, empty); err != nil {
		return err
	}
	if len(r.Buffers) > 0 {
		fmt.Fprintf(w, "\n%d dma-buf(s), %s\n", len(r.Buffers), bytesize.Format(total))
	}
	if n := len(r.Unknown); n > 0 {
		fmt.Fprintf(w, "\nNot everything could be looked at, so there may be more:\n")
		for _, u := range r.Unknown[:min(n, shownUnknown)] {
			fmt.Fprintf(w, "  %s\n", u)
		}
		if n > shownUnknown {
			fmt.Fprintf(w, "  ... and %d more (--json lists them all)\n", n-shownUnknown)
		}
	}
	return nil
}

const shownUnknown = 5

func (b *Buffer) holders() string {
	var list []string
	for _, h := range b.Holders {
		var how []string
		for _, fd := range h.FDs {
			how = append(how, fmt.Sprintf("fd %d", fd))
		}
		if n := len(h.Maps); n > 0 {
			how = append(how, fmt.Sprintf("%d mapping(s)", n))
		}
		list = append(list, fmt.Sprintf("%s[%d] %s", h.Comm, h.PID, strings.Join(how, ", ")))
	}
	if len(list) == 0 {
		return "the kernel only"
	}
	return strings.Join(list, "; ")
}
