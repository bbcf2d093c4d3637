// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/bench"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// ipSays returns what ip shows.
func ipSays(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %q: %v: %s", args, err, out)
	}
	return string(out)
}

// up reports whether a network device is switched on.
func up(t *testing.T, dev string) bool {
	t.Helper()
	return strings.Contains(ipSays(t, "-o", "link", "show", "dev", dev), ",UP")
}

func had(t *testing.T, dev string) string {
	t.Helper()
	return ipSays(t, "-4", "-o", "address", "show", "dev", dev) + ipSays(t, "-4", "route", "show", "dev", dev) + ipSays(t, "neighbour", "show", "nud", "permanent", "dev", dev)
}

// vlan is a network device that goes down and comes up with rail0a.
const vlan = "rail0a.5"

// flapping is a server over cables, and what there was before it.
type flapping struct {
	testenv.Cables
	*served
	had  []string
	left left
}

func newFlapping(t *testing.T) *flapping {
	t.Helper()
	f := &flapping{Cables: testenv.NewCables(t, 2)}
	tool(t, "ip", "route", "add", "10.77.0.0/24", "dev", "rail0a")
	tool(t, "ip", "link", "add", "link", "rail0a", "name", vlan, "type", "vlan", "id", "5") // goes with rail0a
	tool(t, "ip", "address", "add", "10.88.0.1/24", "dev", vlan)
	tool(t, "ip", "link", "set", vlan, "up")
	tool(t, "ip", "route", "add", "10.88.1.0/24", "via", "10.88.0.9", "dev", vlan)
	for _, dev := range append(f.NICs("a"), vlan) {
		f.had = append(f.had, had(t, dev))
	}
	f.left = leftBehind(t)
	f.served = servingSeveral(t, f.Cables, "--gpu", "udmabuf")
	return f
}

// bench is `bench --flap` to the server.
func (f *flapping) bench(t *testing.T, args ...string) *run {
	t.Helper()
	return command(t, append([]string{
		"bench", f.doc.Result.Listen, "--json", "--nic", strings.Join(f.NICs("a"), ","), "--size", "1MiB", "--timeout", stepLimit,
		"--gpu", "udmabuf", "--flap", "--sizes", "64,32KiB,512KiB", "--depth", "4",
	}, args...)...)
}

// whole fails the test if a link is cut, or if what its device had before is not there.
func (f *flapping) whole(t *testing.T) {
	t.Helper()
	for i, dev := range append(f.NICs("a"), vlan) {
		if !up(t, dev) {
			t.Errorf("%s is down", dev)
		}
		if now := had(t, dev); now != f.had[i] {
			t.Errorf("%s: before\n%snow\n%s", dev, f.had[i], now)
		}
	}
}

// Links of both NICs are cut while bytes go over them: nothing is lost, all rails come back, and what
// the devices had is there again.
//
//testbed:kernel 7.2 6.12
func TestVMBenchFlap(t *testing.T) {
	testenv.VM(t)
	f := newFlapping(t)
	r := f.bench(t, "--cuts", "4", "--seed", "2")
	if status := r.do(t); status != cli.ExitOK {
		t.Fatalf("exit status %d\n%s%s\nserve says: %s", status, r.out.String(), r.err.String(), f.says.String())
	}
	d := parse[severalDoc](t, r.out.Bytes()).Result
	x := d.Flap
	t.Log(r.err.String())
	if x == nil || !x.Nothing || len(x.Cuts) != 4 || x.Planned != 4 || x.Seed != 2 || x.Failed+x.Wrong+x.Lost+x.Twice > 0 || x.Verified == 0 || x.Messages == 0 || x.Pause <= 0 {
		t.Fatalf("%s", r.out.String())
	}
	cut := map[string]int{}
	for _, x := range x.Cuts {
		cut[x.NetDev]++
		if x.Down <= 0 || x.Lost < 1 || x.Back <= 0 || x.NIC != x.NetDev {
			t.Errorf("%+v", x)
		}
	}
	if len(cut) != 2 {
		t.Errorf("seed 2 cuts %v", cut)
	}
	for i, rail := range d.Rails {
		if !rail.Up || rail.Bytes == 0 || rail.Lost < cut[rail.NIC] || rail.NIC != f.NICs("a")[i] {
			t.Errorf("%+v", rail)
		}
	}
	for _, want := range []string{"this cuts the links of rail0a (network device rail0a) and rail1a (network device rail1a): 4 cuts in all", "seed 2", "its rail was back", "the rail of rail0a has no link: ", "the rail of rail0a has a link again: port 1 of rail0a"} {
		if !strings.Contains(r.err.String(), want) {
			t.Errorf("stderr does not say %q:\n%s", want, r.err.String())
		}
	}
	var same struct {
		Result struct{ Flap bench.FlapResult }
	} // as text has it
	var text strings.Builder
	if err := json.Unmarshal(r.out.Bytes(), &same); err != nil {
		t.Error(err)
	}
	if err := same.Result.Flap.Text(&text); err != nil || !strings.Contains(text.String(), "\nPASS: nothing was lost: 0 operations failed, 0 wrong bytes, 0 messages lost, 0 messages duplicated\n") {
		t.Errorf("%v\n%s", err, text.String())
	}
	t.Log(text.String())
	f.whole(t)
	f.ends(t)
	nothingMore(t, f.left)
}

// A link that is cut is put back if a signal ends the run, and if the server is killed.
//
//testbed:kernel 7.2 6.12
func TestVMBenchFlapInterrupted(t *testing.T) {
	testenv.VM(t)
	signal := func(by os.Signal) func(f *flapping, r *run) error {
		return func(_ *flapping, r *run) error { return r.Process.Signal(by) }
	}
	for name, c := range map[string]struct {
		end    func(f *flapping, r *run) error
		status int
	}{
		"interrupt":  {signal(unix.SIGINT), cli.ExitInterrupted},
		"terminated": {signal(unix.SIGTERM), cli.ExitInterrupted},
		"no server":  {func(f *flapping, _ *run) error { return f.Process.Kill() }, cli.ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlapping(t)
			r := f.bench(t, "--cuts", "1000")
			r.begin(t)
			down, begun := false, time.Now()
			for end := time.Now().Add(testenv.Limit(3 * time.Minute)); !down && r.running(t) && time.Now().Before(end); time.Sleep(time.Millisecond) {
				down = !up(t, "rail0a") || !up(t, "rail1a")
			}
			if !down {
				_ = r.Process.Kill()
				t.Fatalf("no link is cut; exit status %d\n%s%s\nserve says: %s", r.status(t), r.out.String(), r.err.String(), f.says.String())
			}
			t.Logf("a link is cut after %v", time.Since(begun))
			if err := c.end(f, r); err != nil {
				t.Fatal(err)
			}
			if status := r.status(t); status != c.status {
				t.Errorf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
			}
			f.whole(t)
			x := parse[severalDoc](t, r.out.Bytes()).Result.Flap
			if x == nil || x.Nothing || len(x.Cuts) == 0 || x.Wrong+x.Lost+x.Twice > 0 {
				t.Errorf("%s", r.out.String())
			}
			if c.status == cli.ExitInterrupted {
				f.ends(t)
			} else {
				t.Log(r.err.String())
				_ = f.Wait() // it was killed
			}
			nothingMore(t, f.left)
		})
	}
}

// A process that may not switch network devices off gets an error, and cuts nothing.
//
//testbed:kernel 7.2 6.12
func TestVMBenchFlapNotAllowed(t *testing.T) {
	testenv.VM(t)
	f := newFlapping(t)
	r := f.bench(t)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its capabilities with it
		err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0)
		if err == nil {
			err = r.Start()
		}
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	checkRefused(t, r, cli.ExitFailed, "EPERM", "CAP_NET_ADMIN", "this process may not switch rail0a off; nothing was cut")
	f.whole(t)

	// A device that is down already is not touched.
	f.Down(t, 1)
	r = f.bench(t, "--timeout", "5s") // for which it waits for the rail
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, r, cli.ExitFailed, "", "", "rail1a")
	if !up(t, "rail0a") || up(t, "rail1a") {
		t.Error("a link was switched")
	}
	f.Up(t, 1)
	f.ends(t)
}

// checkRefused looks at the only error of a run.
func checkRefused(t *testing.T, r *run, want int, errno, remedy, says string) {
	t.Helper()
	status := r.status(t)
	d := parse[severalDoc](t, r.out.Bytes())
	if status != want || len(d.Errors) == 0 {
		t.Fatalf("exit status %d\n%s%s", status, r.out.String(), r.err.String())
	}
	e := d.Errors[0]
	t.Log(e.Message)
	if errno != "" && (e.Errno == nil || e.Errno.Name != errno) || !strings.Contains(e.Remedy, remedy) || !strings.Contains(e.Message, says) || d.Result.Flap != nil && len(d.Result.Flap.Cuts) > 0 {
		t.Errorf("%+v", e)
	}
}
