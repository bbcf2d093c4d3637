// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/agent"
)

// Callers that ask within the time share one look at the machine.
func ExampleShare() {
	looks := 0
	shared := agent.Share(func(context.Context) agent.Answer {
		looks++
		return agent.Answer{Labels: "p2pcheck.result=pass\n"}
	}, time.Minute)
	for range 3 {
		answer, err := shared.Answer(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(answer.Labels)
	}
	fmt.Println(looks, "look")
	// Output:
	// p2pcheck.result=pass
	// p2pcheck.result=pass
	// p2pcheck.result=pass
	// 1 look
}
