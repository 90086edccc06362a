# Everything a developer does here. The first use of any target sets up what it needs (devhost/setup.sh).
# On the command line or in the environment:
#   run    SPLIT=1 (a process for each group of functions), DEVHOST_FLEX=on (groups that go to zero), DEVHOST_REFUSED=off (storage that refuses connections ends no process), PORT, RECEIVER_PORT, AZURITE=memory, AZURITE_LOCATION (a folder), AZURITE_BLOB_PORT, AZURITE_QUEUE_PORT, AZURITE_TABLE_PORT, DEVHOST_HOSTS (further hosts that requests may name), TOKENS=1 (a fake identity endpoint), RECEIVER_TLS_PORT
#   test, slow  JOBS (processes), ARGS (further arguments of pytest: ARGS='-k lease -x')
#   prove  ONLY (a proof, a file or a folder: ONLY=model/turns), ALL=1 (what is current too), JOBS
#   lock   ARGS (of `uv pip compile`: ARGS=--upgrade)
#   audit  ARGS (of pip-audit)
#   conformance  ARGS (its options: ARGS='--account NAME --minutes 1'), CONFORMANCE_STORAGE
#   bench, host-test, demo, demo-maintenance, demo-owners  ARGS (their options: ARGS=--help lists them)
#   all    DEVHOST_LOOP=asyncio (the event loop; uvloop by default, as in production)
#   setup  PYTHON=/path/to/python3.13
#   wheel  PYTHON=/path/to/python3

PY := .venv/bin/python
# The tools of .venv first, `node` among them: on a machine without Node it is the only one.
IN_VENV := PATH="$(CURDIR)/.venv/bin:$$PATH"

# More processes than cores: many tests wait, for signals, time-outs and gates that grow old.
JOBS ?= 4
SEEDS ?= 100
ARGS ?=

# Hundreds of short processes load the same modules: without their bytecode each would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test slow prove quick lint long model simulate simulate-leases simulate-checkpoints bench host-test conformance demo picture pictures demo-maintenance demo-owners wheel lowest docs reference texts settings routes problems openapi clients typescript bicep snapshots lock package sbom audit clean

help:  ## list the targets (this)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' Makefile

setup:  ## create or update .venv and node_modules, for all targets; the others set up what they need
	@devhost/setup.sh

.PHONY: setup-run setup-docs setup-audit
setup-run setup-docs setup-audit:
	@devhost/setup.sh $(@:setup-%=%)

run: setup-run  ## start the storage emulator and the app on http://localhost:7071
	@$(IN_VENV) exec $(PY) -m devhost

test: lint  ## the checks of lint and of the proofs' certificates, then every test not marked long
	@$(IN_VENV) $(PY) -m tests.proofs --check
	@$(IN_VENV) exec $(PY) -m tests.run $(JOBS) $(ARGS)

slow: setup  ## the tests that drive processes, beside three computing processes for each core; nothing is repeated
	@$(IN_VENV) exec $(PY) -m tests.run --slow $(JOBS) $(ARGS)

prove: setup  ## prove what has changed, and write tests/proved: ONLY=name, ALL=1, JOBS (default: the processors)
	@$(IN_VENV) $(PY) -m tests.proofs $(if $(ONLY),--only '$(ONLY)') $(if $(ALL),--all) $(if $(filter-out file,$(origin JOBS)),--jobs $(JOBS))

quick: setup  ## the unit and conformance tests: under three minutes on two cores
	$(IN_VENV) $(PY) -m pytest -n $(JOBS) --dist worksteal -m "not long" tests/unit tests/conformance $(ARGS)

lint: setup  ## ruff (rules and format), mypy, and the order of the layers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --python-version 3.12 --cache-dir .mypy_cache/installed shared & installed=$$!; \
	  $(PY) -m mypy; app=$$?; wait $$installed && exit $$app
	PYTHONPATH=. .venv/bin/lint-imports --no-logo

long: setup  ## the tests that need minutes
	$(IN_VENV) $(PY) -m pytest -m long $(ARGS)

model: setup  ## the model checker with larger plays than the proofs have (many minutes)
	$(IN_VENV) $(PY) -m tests.model --full

simulate: setup  ## SEEDS=n simulated runs (default 100)
	$(IN_VENV) $(PY) -m tests.simulation --seeds $(SEEDS)

simulate-leases: setup  ## SEEDS=n simulated histories of fleets
	$(IN_VENV) $(PY) -m tests.simulation.leases --seeds $(SEEDS)

simulate-checkpoints: setup  ## SEEDS=n simulated days of replica groups
	$(IN_VENV) $(PY) -m tests.simulation.checkpoints --seeds $(SEEDS)

bench: setup  ## the benchmarks
	$(IN_VENV) $(PY) -m bench $(ARGS)

host-test: setup  ## test a Functions host from outside: the devhost, or the host that HOST_START runs
	$(IN_VENV) $(PY) -m devhost.hosttest $(ARGS)

conformance: setup  ## verify a real storage account: ARGS='--account NAME', or the connection string in CONFORMANCE_STORAGE
	@$(IN_VENV) $(PY) -m devhost.conformance $(ARGS)

demo: setup-run  ## a small living system for the dashboard: events, a fleet, turns, host updates; PORT=7071 by default
	$(IN_VENV) PORT=$${PORT:-7071} $(PY) -m devhost.demo.living $(ARGS)

picture: setup  ## docs/img/architecture.svg, from its text; checkpoint-clocks.svg, from the rules of turns; sequence diagrams, from the protocols
	$(PY) -m devhost.pictures.architecture
	$(PY) -m devhost.pictures.clock_chart
	$(PY) -m tests.diagrams

pictures: setup  ## the pictures of the dashboard and of commands, with the machine's Chromium, and the recording of a first delivery
	$(IN_VENV) $(PY) -m tests.browser.pictures
	$(IN_VENV) $(PY) -m devhost.pictures.recording

demo-maintenance: setup-run  ## five nodes, three fault domains, a rolling host update: a time-line, in a minute
	$(IN_VENV) $(PY) -m devhost.demo.maintenance $(ARGS)

demo-owners: setup-run  ## five servers, kill -9, and a counter for each key that is exact at the end, in two minutes
	$(IN_VENV) $(PY) -m devhost.demo.owners $(ARGS)

wheel:  ## build the wheel into dist/, in place of older ones; it needs no set-up, only Python 3.12 or newer with pip
	@devhost/wheel.sh

lowest: setup  ## the tests of client and command with the oldest libraries that the wheel allows; needs the package index
	@$(PY) -m devhost.dependencies.lowest

docs: setup-docs  ## build the pages of docs/ as a searchable site in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

reference: setup settings problems  ## write the generated pages of docs/reference: settings, problems, commands, metrics, log actions, limits, stored rows
	for page in command metrics log_actions limits stored_rows; do $(PY) -m devhost.pages.$$page || exit 1; done

texts: setup  ## write the texts that people act on: tests/data/error_texts.json from the source, texts.json from the tests that name them
	$(PY) -m tests.error_texts
	$(IN_VENV) WRITE_TEXTS=1 $(PY) -m pytest -q -n $(JOBS) --dist worksteal $(ARGS) $$(grep -rl --include 'test_*.py' 'from tests.texts import' tests)

settings: setup  ## write docs/reference/settings.md from the class
	$(PY) -m devhost.pages.settings

routes: setup  ## write shared/extras/route_index.py, by which the host finds the HTTP functions, from the routes
	$(PY) -m devhost.route_index

problems: setup  ## write docs/reference/problems.md from the routes
	$(PY) -m devhost.pages.problems

openapi: setup  ## write docs/reference/openapi.json from the routes, and the TypeScript client's types from it
	$(IN_VENV) $(PY) -m devhost.openapi_document

clients: setup  ## write the blocking Python client and lock from those for asyncio
	@$(PY) -m devhost.blocking_client

typescript: setup  ## build clients/typescript/dist
	$(IN_VENV) node node_modules/typescript/bin/tsc --project clients/typescript

bicep:  ## check infra/ with the Bicep compiler on PATH: form, lint, and the snapshots of what it deploys
	@infra/check.sh

snapshots:  ## bring infra/ into the compiler's form, and write infra/snapshots anew
	@infra/check.sh write

lock: setup  ## pin what requirements*.in choose, with hashes, in requirements*.txt; ARGS=--upgrade renews all other pins
	@devhost/dependencies/lock.sh $(ARGS)

package: setup  ## make what is deployed, build/app.zip, and index it with a bare Python 3.13; needs the package index
	@$(PY) -m devhost.dependencies.package $(ARGS)

sbom: setup  ## write build/sbom: what is deployed and what nodes get, as CycloneDX
	@$(PY) -m devhost.dependencies.sbom

audit: setup-audit  ## look every package up in the databases of known vulnerabilities; needs a network
	@$(IN_VENV) $(PY) -m devhost.dependencies.audit $(ARGS)

clean:  ## remove caches and built files; .venv, node_modules and the data in .azurite stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
	find . \( -name .git -o -name .venv -o -name node_modules \) -prune -o -name __pycache__ -type d -exec rm -rf {} +
