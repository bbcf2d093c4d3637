// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// DefaultPort is that of a worker.
const DefaultPort = "7472"

// params are all flags. Those of workers and those of coordinators exclude one another.
type params struct {
	station.Flags
	worker bool

	// Of a worker.
	listen      string
	dataPort    int
	allow       []string
	once        bool
	pkey        uint16
	mtu         int
	class, lane uint8

	// Of a coordinator.
	nodes    string
	opSize   cli.Size
	volume   cli.Size
	depth    int
	small    int
	time     time.Duration
	sameRail bool
	parallel int
	giveUp   int
	wait     time.Duration
	slow     int
	wide     bool
	report   string
}

// Command is `mesh`.
func Command(a *app.App) *cobra.Command {
	var f params
	cmd := &cobra.Command{
		Use:   "mesh [NODE...]",
		Short: "Measure between all NICs of many nodes, and name the nodes that are slow",
		Long: `Each node runs a worker, ` + "`dmabuf-reg mesh --worker`" + `. The coordinator, ` + "`dmabuf-reg\nmesh NODE...`" + `, which needs no NIC, has the workers measure each pair of NICs of two
nodes once: first whether bytes arrive (WRITE and READ, every byte compared), then
the latency of WRITE, then the rate in both directions. No NIC is in two
measurements at once, and as many measurements as possible run at once.

NODE is HOST or HOST:PORT (` + DefaultPort + ` without one), or a host list as Slurm writes it,
gpu[01-32]. The other nodes must reach a node by its HOST, too. Without NODE the
list is that of --nodes FILE (words on lines; - is stdin), or of a Slurm job
(SLURM_JOB_NODELIST).

The matrix has the lowest rate and the worst state of all NICs of two nodes; with
--wide it has the NICs themselves. A node, a rail (the NICs at the same place of
all nodes) or a NIC is slow if its median is further from the median of all than
four times their spread (1.4826 times the median absolute deviation), and at
least --slow percent worse. With fewer than four nodes no node is named.

A worker takes orders of one coordinator at a time, over mutual TLS (--tls-cert,
--tls-key, --tls-ca), on loopback addresses, or in the clear with --plaintext. It
measures only towards nodes of the coordinator's list that expect it: over TLS each
shows that by its certificate; in the clear they must be in a network of this
machine, or of --allow. It serves until Ctrl-C, or with --once one coordinator.

Exit status of the coordinator: 0 every pair was reached and no node is slow, 1
something is not reached, was lost, or is slow, 2 wrong usage, 3 nothing was
measured, or nothing bad is known and something is unknown, such as a node
without a worker. Ctrl-C ends all measurements, prints what there is, and gives
130.`,
		Example: `  dmabuf-reg mesh --worker --listen :7472 --tls-cert a.pem --tls-key a.key --tls-ca ca.pem
  dmabuf-reg mesh gpu[01-32] --tls-cert c.pem --tls-key c.key --tls-ca ca.pem
  srun --ntasks-per-node=1 dmabuf-reg mesh --worker --listen :7472 --plaintext --once &
  dmabuf-reg mesh --plaintext --same-rail --json
  dmabuf-reg mesh --nodes pods.txt --report mesh.json --wide --plaintext`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.worker, "worker", false, "be the worker of this node")
	f.AddProtection(cmd, 5*time.Second, "how long one step of a measurement may take, such as to connect")

	workers := f.addWorker(cmd)
	coordinators := f.addCoordinator(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.Action(func(ctx context.Context) (app.Result, error) {
			foreign, whose := workers, "--worker, and without it"
			if f.worker {
				foreign, whose = coordinators, "the coordinator, and with --worker"
			}
			if err := onlyWith(flags, foreign, whose); err != nil {
				return nil, err
			}
			if err := f.Check(); err != nil {
				return nil, err
			}
			switch {
			case f.worker && len(args) > 0:
				return nil, usage("%q: a worker takes no nodes: the coordinator gives them", args[0])
			case f.worker:
				return f.doWork(ctx, a)
			}
			return f.doCoordinate(ctx, a, args)
		})(cmd, nil)
	}
	return cmd
}

func usage(format string, args ...any) error {
	return &cli.UsageError{Err: fmt.Errorf(format, args...)}
}

// onlyWith refuses flags of the other side.
func onlyWith(flags *pflag.FlagSet, foreign []string, whose string) error {
	for _, name := range foreign {
		if flags.Changed(name) {
			return usage("--%s is for %s it has no effect", name, whose)
		}
	}
	return nil
}

// added returns the flags that a function adds.
func added(cmd *cobra.Command, add func()) (names []string) {
	before := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	add()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] {
			names = append(names, f.Name)
		}
	})
	return names
}

func (f *params) addWorker(cmd *cobra.Command) []string {
	return added(cmd, func() {
		flags := cmd.Flags()
		flags.StringVar(&f.listen, "listen", "127.0.0.1:"+DefaultPort, "worker: HOST:PORT to take orders on; :PORT is all addresses of this machine")
		flags.IntVar(&f.dataPort, "data-port", 0, "worker: TCP port of the first NIC, the second has the next one (default: any that are free)")
		flags.StringSliceVar(&f.allow, "allow", nil, "worker: networks towards which it measures, such as 10.0.0.0/8, comma separated (default: with TLS all nodes of the coordinator's list; in the clear the networks of this machine)")
		flags.BoolVar(&f.once, "once", false, "worker: end after the first coordinator")
		cli.OnceVar(cmd, &f.NIC, "nic", "NIC", "all", "worker: RDMA devices, comma separated; all is each that has an active port")
		cli.OnceVar(cmd, &f.GPU, "gpu", "SPEC", station.Host, "worker: memory whose bytes move: a spec that dmabuf-reg devices lists, auto, or host")
		f.Size = 4 << 20
		flags.Var(&f.Size, "size", "worker: bytes to allocate for each NIC")
		f.AddPolicy(cmd)
		f.AddPath(cmd)
		flags.Uint16Var(&f.pkey, "pkey", 0, "worker: partition, such as 0x8001 (default: the port's first)")
		flags.IntVar(&f.mtu, "mtu", 0, "worker: size of packets: 256, 512, 1024, 2048 or 4096 (default: what both ports allow)")
		flags.Uint8Var(&f.class, "traffic-class", 0, "worker: traffic class of RoCE packets: DSCP in the upper 6 bits")
		flags.Uint8Var(&f.lane, "service-level", 0, "worker: service level of InfiniBand, or the priority of a VLAN")
		options.CompleteGPU(cmd, station.Host)
		nics.CompleteSeveral(cmd)
	})
}

func (f *params) addCoordinator(cmd *cobra.Command) []string {
	return added(cmd, func() {
		flags := cmd.Flags()
		flags.StringVar(&f.nodes, "nodes", "", "file with the nodes; - is stdin")
		f.opSize, f.volume = 1<<20, 256<<20
		flags.Var(&f.opSize, "op-size", "bytes of one WRITE or READ of the rate; not more than the workers' --size")
		flags.Var(&f.volume, "volume", "most bytes moved in each direction between two NICs")
		flags.IntVar(&f.depth, "depth", 16, "operations under way")
		flags.IntVar(&f.small, "small", 1000, "most WRITEs of 8 bytes for the latency")
		flags.DurationVar(&f.time, "time", 500*time.Millisecond, "longest time of each of the three: latency, rate of WRITE, rate of READ")
		flags.BoolVar(&f.sameRail, "same-rail", false, "only NICs at the same place of their nodes")
		flags.IntVar(&f.parallel, "parallel", 0, "most measurements at once (default: as many as the NICs allow)")
		flags.IntVar(&f.giveUp, "give-up", 8, "give up a NIC that has reached none of this number of others; 0: no NIC")
		flags.DurationVar(&f.wait, "wait", 5*time.Second, "how long to try to connect to workers that do not listen yet")
		flags.IntVar(&f.slow, "slow", 20, "percent by which a slow node is worse than the median of all")
		flags.BoolVar(&f.wide, "wide", false, "a row for each NIC instead of each node")
		flags.StringVar(&f.report, "report", "", "file to write the result to, as JSON, for other programs")
		_ = cmd.MarkFlagFilename("report", "json")
		_ = cmd.MarkFlagFilename("nodes")
	})
}

// slurm has the nodes of a job.
func slurm() string {
	for _, name := range []string{"SLURM_JOB_NODELIST", "SLURM_NODELIST"} {
		if list := strings.TrimSpace(os.Getenv(name)); list != "" {
			return list
		}
	}
	return ""
}

var errNoNodes = errors.New("no nodes: name them, or give --nodes FILE; in a job of Slurm SLURM_JOB_NODELIST has them")
