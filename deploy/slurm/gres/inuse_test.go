// SPDX-License-Identifier: Apache-2.0

package gres

import (
	"fmt"
	"strings"
	"testing"
)

func TestInUse(t *testing.T) {
	for text, want := range map[string]string{
		"NodeName=a GresUsed=gpu:0\n":                                         "map[]",
		"   GresDrain=N/A\n   GresUsed=gpu:0(IDX:N/A)\n":                      "map[]",
		"GresUsed=gpu:2(IDX:0,3) X=1":                                         "map[0:true 3:true]",
		"GresUsed=gpu:(null):3(IDX:1-3)":                                      "map[1:true 2:true 3:true]",
		"GresUsed=nic:1(IDX:7),gpu:h100:1(IDX:0),gpu:a100:2(IDX:4-5),shard:0": "map[0:true 4:true 5:true]",
		"GresUsed=gpu:1(IDX:0) Comment=GresUsed=gpu:1(IDX:7)":                 "map[0:true]",
		"NodeName=a":            "it prints no GresUsed=",
		"GresUsed=":             "knows of no GPU",
		"GresUsed=(null)":       "knows of no GPU",
		"GresUsed=gpu:2":        "which GPUs jobs have: GresUsed=gpu:2",
		"GresUsed=gpu:2(IDX:0)": "which GPUs jobs have",
		"GresUsed=gpu:1(IDX:x)": "which GPUs jobs have",
	} {
		got, err := InUse(text)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
