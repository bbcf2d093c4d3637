// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"text/tabwriter"
	"time"
)

// options are the flags, as data.
type options struct {
	device    string
	exporters []string
	sizes     []int64
	rounds    int
	slice     time.Duration
	peer      string
}

func main() {
	var (
		opt       options
		exporters = flag.String("exporters", "", "comma-separated allocator specs (default: every one that is there)")
		sizes     = flag.String("sizes", "4096,65536,1048576,16777216,67108864", "buffer sizes in bytes")
		profile   = flag.String("cpuprofile", "", "write a profile of this process, the Go side, to a file")
		asJSON    = flag.Bool("json", false, "print one JSON document")
	)
	flag.StringVar(&opt.device, "nic", "rxe0", "RDMA device")
	flag.IntVar(&opt.rounds, "rounds", 30, "rounds; fewer than 30 are no measurement")
	flag.DurationVar(&opt.slice, "slice", 60*time.Millisecond, "length of a turn; at most 100ms")
	flag.StringVar(&opt.peer, "peer", "reg-loop", "the C program to compare with")
	flag.Parse()

	if *exporters != "" {
		opt.exporters = strings.Split(*exporters, ",")
	}
	for _, s := range strings.Split(*sizes, ",") {
		var n int64
		if _, err := fmt.Sscan(s, &n); err != nil || n <= 0 {
			fmt.Fprintf(os.Stderr, "bench: size %q is not a positive number of bytes\n", s)
			os.Exit(2)
		}
		opt.sizes = append(opt.sizes, n)
	}
	if opt.slice > 100*time.Millisecond {
		fmt.Fprintln(os.Stderr, "bench: a turn of more than 100ms measures the machine's drift")
		os.Exit(2)
	}

	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		defer f.Close()
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := pin(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	rows, err := compareRegistration(ctx, opt)
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		_ = enc.Encode(struct {
			Schema string `json:"schema"`
			Rows   []row  `json:"rows"`
		}{"bench-registration/v1", rows})
	} else {
		print(rows)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func print(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "register + deregister, Go against C\t\t\t\t\t\t\t")
	fmt.Fprintln(w, "exporter\tsize\tGo p50\tGo p99\tC p50\tC p99\tGo/C at p50 (p10-p90)\tC/C, the noise")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t%v\t%v\t%v\n",
			r.Exporter, r.Size, r.GoP50, r.GoP99, r.CP50, r.CP99, r.GoOverC, r.COverC)
	}
	w.Flush()
}
