// SPDX-License-Identifier: Apache-2.0

package cm_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
)

// A client and a server that connect by IP address. The queue pairs are ibvfd's,
// on the device that the address tells.
func Example() {
	if err := meet(context.Background(), "10.9.0.1"); err != nil {
		log.Print(err)
	}
}

func meet(ctx context.Context, host string) (err error) {
	l, err := cm.Listen(host + ":0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	served := make(chan error, 1)
	go func() { served <- serveOne(ctx, l) }()

	id, err := cm.Resolve(ctx, fmt.Sprintf("%s:%d", host, l.Addr().Port()), "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.Close(), l.Close(), <-served) }()
	return onDevice(id.Device(), func(qp *ibvfd.QP) error {
		answer, err := id.Connect(ctx, qp, cm.Param{PrivateData: []byte("what the server should know")})
		var refused *cm.RejectedError
		if errors.As(err, &refused) {
			return fmt.Errorf("the server says %q: %w", refused.PrivateData, err)
		}
		if err != nil {
			return err
		}
		_ = answer // and now: post, poll
		return id.Disconnect(ctx)
	})
}

func serveOne(ctx context.Context, l *cm.Listener) (err error) {
	req, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, req.Close()) }()
	if len(req.PrivateData()) == 0 {
		return req.Reject([]byte("say who you are"))
	}
	return onDevice(req.Device(), func(qp *ibvfd.QP) error {
		if err := req.Accept(ctx, qp, cm.Param{}); err != nil {
			return err
		}
		return req.Wait(ctx) // until the client has gone
	})
}

// onDevice makes a queue pair for f.
func onDevice(name string, f func(*ibvfd.QP) error) (err error) {
	var open []interface{ Close() error }
	defer func() {
		for i := len(open) - 1; i >= 0; i-- {
			err = errors.Join(err, open[i].Close())
		}
	}()
	nic, err := ibvfd.Open(name)
	if err != nil {
		return err
	}
	open = append(open, nic)
	pd, err := nic.AllocPD()
	if err != nil {
		return err
	}
	open = append(open, pd)
	cq, err := nic.CreateCQ(16)
	if err != nil {
		return err
	}
	open = append(open, cq)
	qp, err := pd.CreateQP(ibvfd.QPAttr{Type: ibvfd.RC, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	open = append(open, qp)
	return f(qp)
}
