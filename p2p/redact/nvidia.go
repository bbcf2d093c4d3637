// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"
)

// Rules of the files of NVIDIA's driver.
var (
	nvidiaVersion = byLine("the version of the driver, and whether it is the open one", func(r *Redactor, line string) (string, bool) {
		rest, ok := strings.CutPrefix(line, "NVRM version:")
		if !ok {
			return "", false
		}
		rest, _, _ = strings.Cut(rest, "(") // the user that built it, and the time
		return "NVRM version:" + strings.TrimRight(text(rest, func(token string) string {
			if words.has(token) || aVersion.MatchString(token) && !anIPv4.MatchString(token) {
				return token
			}
			return left
		}), " …"), true
	})
	// The names of texts behind the numbers show that the file was not cut.
	nvidiaParams = byLine("parameters that a check reads", func(_ *Redactor, line string) (string, bool) {
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "DmaRemapPeerMmio", "GrdmaPciTopoCheckOverride", "EnableResizableBar", "ResmanDebugLevel":
			return field(line, name, aNumber)
		case "CoherentGPUMemoryMode":
			return field(line, name, expression(`^"(?:|numa|driver|none)"$`))
		case "RegistryDwords":
			return name + `: "` + strings.Join(registry.FindAllString(value, -1), ";") + `"`, ok
		case "RegistryDwordsPerDevice", "RmMsg", "ExcludedGpus":
			return name + `: ""`, ok
		}
		return "", false
	})
	registry = expression(`(?i)PeerMappingOverride=[0-9a-fx]{1,10}|RmConfidentialCompute(?:=[0-9a-fx]{1,10})?`)

	nvidiaInformation = byLine("Model, GPU Firmware, Device Minor", func(r *Redactor, line string) (string, bool) {
		name, value, ok := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "Model":
			return name + ":" + r.product(value), ok
		case "GPU Firmware":
			return field(line, name, expression(`^(?:N/A|\d{3,4}(?:\.\d{1,4}){1,2})\s*$`))
		case "Device Minor":
			return field(line, name, aNumber)
		}
		return "", false
	})
)
