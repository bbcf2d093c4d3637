// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// withDoubles lets the command have GPUs of every vendor, which testbed/doubles
// plays; knobs are the doubles' variables.
func (r *run) withDoubles(t *testing.T, knobs ...string) *run {
	t.Helper()
	r.Env = append(r.Env, doublesEnv(t)...)
	r.Env = append(r.Env, knobs...)
	return r
}

func doublesEnv(t *testing.T) []string {
	t.Helper()
	dir, err := filepath.Abs("../../build/doubles")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"LD_LIBRARY_PATH=" + filepath.Join(dir, "nvml")} // go-nvml has no variable for it
	for name, file := range map[string]string{
		"GPURDMA_LIBCUDA": "cuda/libcuda.so.1",
		"GPURDMA_LIBHSA":  "hsa/libhsa-runtime64.so.1",
		"GPURDMA_LIBZE":   "ze/libze_loader.so.1",
	} {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("the testbed comes with the doubles (make doubles): %v", err)
		}
		env = append(env, name+"="+path)
	}
	return env
}
