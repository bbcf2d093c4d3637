// SPDX-License-Identifier: Apache-2.0

package variables_test

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/variables"
	"github.com/gpurdma/gpurdma/placement"
)

// A value that is right on most machines takes GPUDirect RDMA away on a GH200.
func ExampleJudge() {
	spec := `{"ociVersion":"1.1.0","process":{"env":["PATH=/bin","NCCL_NET_GDR_C2C=0"]}}`
	env, err := variables.FromSpec(strings.NewReader(spec), "")
	if err != nil {
		fmt.Println(err)
		return
	}
	gh200 := variables.Facts{
		GPUs: []variables.GPU{{
			Name: "0009:01:00.0", Vendor: variables.NVIDIA, Coherent: placement.Yes,
			Nearest: variables.PHB, NearestAny: variables.PHB, NearestNICs: []string{"mlx5_0"},
		}},
		NICs: []variables.NIC{{Name: "mlx5_0", Driver: "mlx5_core"}},
	}
	for _, j := range variables.Judge(gh200, env) {
		fmt.Printf("%s=%s: %s\n%s\n%s: %s\n", j.Name, j.Value, j.Result, j.Says, j.Change, j.Set)
	}
	// Output:
	// NCCL_NET_GDR_C2C=0: warn
	// turns GPUDirect RDMA over C2C off, the right way to the NICs on the CPU's own ports: NCCL copies through system memory
	// let NCCL use C2C: NCCL_NET_GDR_C2C=1
}
