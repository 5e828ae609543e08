# Two commands: `make run` shows the product at work, `make test` proves it. The logic is in the scripts they name.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test smoke bench bench-run build lint docs mutants-guards
MAKEFLAGS += --no-print-directory

environment := source tests/environment.sh

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## set up what is missing, build, and play one supervised run (sentinel demo)
	@tests/setup build
	@$(environment) && cargo build --locked -p sentinel && "$$target_dir/debug/sentinel" demo

test: ## set up what is missing and run every suite
	@tests/setup test
	@tests/run

smoke: build ## one supervised run through the built binary and two kills
	@tests/smoke

bench: bench-run ## every benchmark

bench-run: ## figures of the sandbox, the log and start-up
	@tests/setup test
	@bench/run

build: ## every package
	@tests/setup build
	@$(environment) && cargo build --locked --workspace

lint: ## formatting, clippy, shell scripts, dependency policy
	@tests/setup test
	@tests/lint

mutants-guards: ## remove each guard in turn: a named test must fail
	@tests/setup test
	@tests/mutants-guards

docs: ## write the generated parts of the documents
	@$(environment) && UPDATE_DOCS=1 cargo nextest run --workspace -E 'test(/generated_table/)'
