// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/trace"
)

// Every registration of the system, until it is interrupted. It needs root.
func ExampleTracer_Events() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT)
	defer stop()
	t, err := trace.Open(trace.Config{RDMAOnly: true})
	if err != nil {
		log.Fatal(err) // says what is missing: privilege, BTF, a newer kernel
	}
	defer t.Close()
	for e, err := range t.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if s := line(e); s != "" {
			fmt.Println(s)
		}
	}
	fmt.Println(t.Loss())
}

func line(e trace.Event) string {
	switch e.Kind {
	case trace.Registered:
		key := "a key that was not seen" // the kernel skipped the program that reads it
		if mr := e.Record.MR; mr != nil {
			key = fmt.Sprintf("lkey %#x", mr.LKey)
		}
		return fmt.Sprintf("%s: %v", key, e.Record.Placement)
	case trace.Refused:
		return e.Record.Explain().String()
	}
	return ""
}
