// SPDX-License-Identifier: Apache-2.0

package ibvfd_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// A server sleeps until messages come, and takes them in batches.
func ExampleCQ_Wait() {
	serve := func(ctx context.Context, cq *ibvfd.CQ, handle func(ibvfd.WC)) error {
		wc := make([]ibvfd.WC, 64)
		for {
			n, err := cq.Wait(ctx, wc) // cq was made with CQAttr.Events
			if err != nil {
				return err
			}
			for _, c := range wc[:n] {
				handle(c)
			}
		}
	}
	_ = serve
}

// A port that goes down is noticed without waiting for a work request to fail.
func ExampleContext_Events() {
	watch := func(ctx context.Context, nic *ibvfd.Context) error {
		for e, err := range nic.Events(ctx) {
			if err != nil {
				return err // ctx ended, nic was closed, or the device is gone
			}
			switch e.Type {
			case ibvfd.EventPortErr:
				log.Printf("port %d is down", e.Port)
			case ibvfd.EventQPFatal:
				log.Printf("QP %d is dead", e.QP.Num())
			case ibvfd.EventDeviceFatal:
				return errors.New("the device is gone")
			}
		}
		return nil
	}
	_ = watch
}

// The same beside other things that a program waits for.
func ExampleContext_EventChannel() {
	watch := func(ctx context.Context, nic *ibvfd.Context, work <-chan func()) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		events, why := nic.EventChannel(ctx)
		for {
			select {
			case do := <-work:
				do()
			case e, more := <-events:
				if !more {
					return why()
				}
				log.Print(e)
			}
		}
	}
	_ = watch
}

// A datagram to a peer whose Endpoint is known.
func ExampleQP_CreateAH() {
	send := func(qp *ibvfd.QP, peer ibvfd.Endpoint, data []ibvfd.SGE) (*ibvfd.AH, error) {
		ah, err := qp.CreateAH(peer, ibvfd.PathAttr{})
		if err != nil {
			return nil, err
		}
		_, err = qp.PostSend([]ibvfd.SendWR{{
			Op: ibvfd.OpSend, Flags: ibvfd.SendSignaled, SGE: data, AH: ah, QPN: peer.QPN, QKey: peer.QKey,
		}})
		if err != nil {
			return nil, errors.Join(err, ah.Close())
		}
		return ah, nil // to be closed once the send has completed
	}
	_ = send
}

// After an error both sides exchange their Endpoints anew and connect again.
func ExampleQP_Connect() {
	reconnect := func(ctx context.Context, qp *ibvfd.QP, cq *ibvfd.CQ, outstanding int, exchange func(ibvfd.Endpoint) (ibvfd.Endpoint, error)) error {
		if err := qp.Err(); err != nil {
			return err
		}
		wc := make([]ibvfd.WC, 64)
		for outstanding > 0 { // flushed, or completed before
			n, err := cq.PollUntil(ctx, wc)
			if err != nil {
				return err
			}
			outstanding -= n
		}
		remote, err := exchange(qp.Local())
		if err != nil {
			return err
		}
		return qp.Connect(remote, ibvfd.ConnectAttr{Timeout: 16})
	}
	_ = reconnect
}

// A failed work request gives its status.
func ExampleWCError() {
	wc := ibvfd.WC{Status: ibvfd.WCRemAccessErr, VendorErr: 0x88}
	fmt.Println(wc.Err())
	fmt.Println(errors.Is(wc.Err(), &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}))
	// Output:
	// work completion: remote access error (status 10, vendor error 0x88)
	// true
}
