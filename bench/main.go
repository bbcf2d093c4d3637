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

	"golang.org/x/sys/unix"
)

func main() {
	var (
		opt       options
		exporters = flag.String("exporters", "", "comma-separated allocator specs (default: every one that is there)")
		sizes     = flag.String("sizes", "4096,65536,1048576,16777216,67108864", "buffer sizes in bytes; of traffic \"all\" is every power of two from 64 to 4194304")
		profile   = flag.String("cpuprofile", "", "write a profile of this process, the Go side, to a file")
		only      = flag.String("only", "", "registration, allocation, touched, tracing, traffic, rails, binding or scale (default: the first three, which compare Go with C)")
		records   = flag.Int("records", 100_000, "tracing: registrations whose cost to the tracer is measured; 0 for none")
		asJSON    = flag.Bool("json", false, "print one JSON document")
	)
	flag.StringVar(&opt.device, "nic", "rxe0", "RDMA device")
	flag.IntVar(&opt.rounds, "rounds", 30, "rounds; fewer than 30 are no measurement")
	flag.DurationVar(&opt.slice, "slice", 60*time.Millisecond, "length of a turn; at most 100ms")
	flag.BoolVar(&opt.lists, "script-lists", true, "tracing: let the bpftrace script read scatter lists, as our programs do")
	ops := flag.String("ops", "write,read,send", "traffic: operations to compare")
	what := flag.String("what", "rate,latency", "traffic: what to compare of it")
	flag.StringVar(&opt.through, "through", throughIbvfd, "traffic: the package to compare with perftest: ibvfd, endpoint (the engine below package gpurdma), or fabric (package gpurdma)")
	tests := flag.String("tests", "build/bin", "binding: where the packages' test binaries are")
	budget := flag.Duration("budget", 7*time.Minute, "traffic: when to stop, after fewer rounds if need be")
	sides := map[string]func(args []string) error{"side": sideMain, "rails-side": railsSideMain}
	if len(os.Args) > 1 && sides[os.Args[1]] != nil {
		if err := sides[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if counted && !given("slice") {
		opt.slice = countedSlice
	}

	if *exporters != "" {
		opt.exporters = strings.Split(*exporters, ",")
	}
	opt.chosen = given("sizes")
	if *only == "traffic" && *sizes == "all" {
		opt.sizes, *sizes = everySize(), ""
	}
	for _, s := range strings.FieldsFunc(*sizes, func(r rune) bool { return r == ',' }) {
		var n int64
		if _, err := fmt.Sscan(s, &n); err != nil || n <= 0 {
			fmt.Fprintf(os.Stderr, "bench: size %q is not a positive number of bytes\n", s)
			os.Exit(2)
		}
		opt.sizes = append(opt.sizes, n)
	}
	if len(opt.sizes) == 0 {
		fmt.Fprintln(os.Stderr, "bench: -sizes names none")
		os.Exit(2)
	}
	if opt.slice > 100*time.Millisecond {
		fmt.Fprintln(os.Stderr, "bench: a turn of more than 100ms measures the machine's drift")
		os.Exit(2)
	}

	// Not for tracing, which measures a user's tracer with a user's timers; nor for binding,
	// whose programs hardly sleep, and of which only the processor time is measured.
	if *only != "tracing" && *only != "binding" {
		if err := startLate(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if *only == "traffic" { // two sides at once, and the kernel's threads: not on one processor
		if !opt.chosen {
			opt.sizes = trafficSizes
		}
		status := benchTraffic(ctx, opt, strings.Split(*ops, ","), strings.Split(*what, ","), *budget, *asJSON)
		stop()
		os.Exit(status)
	}
	if *only == "rails" {
		status := benchRails(ctx, opt, *asJSON)
		stop()
		os.Exit(status)
	}
	if err := pin(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *only == "binding" {
		status := benchBinding(ctx, opt, *tests, *asJSON)
		stop()
		os.Exit(status)
	}
	if *only == "scale" {
		status := benchScale(ctx, opt, *asJSON)
		stop()
		os.Exit(status)
	}
	if *only == "tracing" {
		status := benchTracing(ctx, opt, *records, *asJSON)
		stop()
		os.Exit(status)
	}
	var tables []table
	var failed error
	for _, c := range comparisons {
		if failed != nil || *only != "" && *only != c.name {
			continue
		}
		var t table
		t.Name, t.what = c.name, c.what
		t.Rows, failed = c.compare(ctx, opt)
		tables = append(tables, t)
		if !*asJSON {
			t.print()
		}
	}
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		_ = enc.Encode(struct {
			Schema string  `json:"schema"`
			Clock  string  `json:"clock"`
			Tables []table `json:"tables"`
		}{"bench/v2", unit(), tables})
	}
	if failed == nil && len(tables) == 0 {
		failed = fmt.Errorf("-only %s: there are registration, allocation, touched, tracing, traffic, rails, binding and scale", *only)
	}
	if failed != nil {
		fmt.Fprintln(os.Stderr, "bench:", failed)
		os.Exit(1)
	}
}

// comparisons are what there is to compare, in this order.
var comparisons = []struct {
	name, what string
	compare    func(context.Context, options) ([]row, error)
}{
	{"registration", "register + deregister", compareRegistration},
	{"allocation", "allocate + export + free", compareAllocation},
	{"touched", "allocate + export + write to each page + free", compareTouched},
}

// table is one comparison's result.
type table struct {
	Name string `json:"name"`
	Rows []row  `json:"rows"`
	what string
}

func (t table) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(os.Stdout, "%s, Go against C, by %s\n", t.what, unit())
	fmt.Fprintln(w, "exporter\tsize\tGo p50\tGo p99\tC p50\tC p99\tGo/C at p50 (p10-p90)\tC/C, the noise")
	for _, r := range t.Rows {
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t%v\t%v\t%v\n",
			r.Exporter, r.Size, r.GoP50, r.GoP99, r.CP50, r.CP99, r.GoOverC, r.COverC)
	}
	w.Flush()
}
