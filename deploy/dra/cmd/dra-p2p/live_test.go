// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpurdma/gpurdma/deploy/dra/memlock"
	"github.com/gpurdma/gpurdma/deploy/dra/proving"
)

// Wrong flags are refused with what to give instead.
func TestCheck(t *testing.T) {
	for says, change := range map[string]func(*options){
		"":                               func(*options) {},
		"--node-name":                    func(o *options) { o.node = "" },
		"--live-every must be 1s":        func(o *options) { o.liveEvery = 0 },
		"--live-again must be":           func(o *options) { o.liveAgain = time.Minute },
		`--memlock: "10 GB" is no limit`: func(o *options) { o.memlock = "10 GB" },
	} {
		o := defaults()
		o.node = "n"
		change(o)
		if err := o.check(); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v", says, err)
		}
	}
}

// Without the hook's program beside this one, the driver goes on, unless the flag asks for a limit.
func TestHooks(t *testing.T) {
	o := defaults()
	dir := t.TempDir()
	if h, err := o.hooks(dir); err != nil || h != nil {
		t.Errorf("%v, %v", h, err)
	}
	o.memlockGiven = true
	if h, err := o.hooks(dir); !errors.Is(err, memlock.ErrNoProgram) || !strings.Contains(err.Error(), "--memlock") {
		t.Errorf("%v, %v", h, err)
	}
	o.memlock = memlock.Off
	if h, err := o.hooks(dir); err != nil || h != nil {
		t.Errorf("%v, %v", h, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Nothing is tried without --live, and on a machine where nothing can be proven.
func TestProver(t *testing.T) {
	o := defaults()
	if p := o.prover(fake.NewClientset()); p != nil {
		t.Error("without --live")
	}
	o.live, o.root = true, "/"
	lacks := (&proving.Prover{Root: o.root}).Lacks()
	if p := o.prover(fake.NewClientset()); (p == nil) != (lacks != nil) {
		t.Errorf("%v, and the machine lacks %v", p, lacks)
	}
	t.Log(lacks)
}
