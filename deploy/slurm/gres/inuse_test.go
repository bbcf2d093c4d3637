// SPDX-License-Identifier: Apache-2.0

package gres

import (
	"fmt"
	"strings"
	"testing"
)

func TestInUse(t *testing.T) {
	for text, want := range map[string]string{
		"NodeName=a GresUsed=gpu:0\n":                                         "",
		"   GresDrain=N/A\n   GresUsed=gpu:0(IDX:N/A)\n":                      "",
		"GresUsed=gpu:2(IDX:0,3) X=1":                                         "03",
		"GresUsed=gpu:(null):3(IDX:1-3)":                                      "123",
		"GresUsed=nic:1(IDX:7),gpu:h100:1(IDX:0),gpu:a100:2(IDX:4-5),shard:0": "045",
		"GresUsed=gpu:1(IDX:0) Comment=GresUsed=gpu:1(IDX:7)":                 "0",
		"   GresDrain=N/A\n   GresUsed=gpu:1\n   NodeAddr=a":                  "01234567", // 22.05.8
		"GresUsed=gpu:a:1(IDX:0),gpu:b:2":                                     "01234567",
		"NodeName=a":                                                          "it prints no GresUsed=",
		"GresUsed=":                                                           "knows of no GPU",
		"GresUsed=(null)":                                                     "knows of no GPU",
		"GresUsed=gpu:2(IDX:0)":                                               "which GPUs jobs have",
		"GresUsed=gpu:1(IDX:x)":                                               "which GPUs jobs have",
	} {
		inUse, err := InUse(text)
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		got := ""
		for n := range 8 {
			if inUse(n) {
				got += fmt.Sprint(n)
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
