// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/metrics"
)

// A program registers a collector of its Fabrics where it registers its own metrics.
func ExampleNewCollector() {
	fabric, err := fabrictest.NewNetwork(fabrictest.Options{}).Open("mlx5_0") // in a program, gpurdma.Open
	if err != nil {
		log.Fatal(err)
	}
	defer fabric.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(fabric))
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "gpurdma_connections" {
			fmt.Println(f.GetMetric()[0].GetGauge().GetValue(), "connections")
		}
	}
	// Output: 0 connections
}
