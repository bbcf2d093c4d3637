# SPDX-License-Identifier: Apache-2.0
#
# Prometheus' own tool over the metrics, the alerts and the dashboards.

PROMTOOL_DIR := $(BUILD)/promtool

.PHONY: test-promtool
test-promtool: ## check metrics, alerts and dashboards with Debian's promtool
	@promtool=$$(deploy/prometheus/promtool.sh $(PROMTOOL_DIR)) && cd deploy && \
		GPURDMA_PROMTOOL=$$promtool $(GO) test -count=1 -run '^TestPromtool' .

# make unit runs these tests, too: they skip where there is no promtool.
export GPURDMA_PROMTOOL := $(or $(GPURDMA_PROMTOOL),$(wildcard $(PROMTOOL_DIR)/promtool))

# `make test`, which CI runs, fetches promtool first.
test: promtool

.PHONY: promtool
promtool:
	@deploy/prometheus/promtool.sh $(PROMTOOL_DIR) >/dev/null
