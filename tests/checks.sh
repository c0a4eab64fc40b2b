# For tests/*/run that source it: `check`, which counts, `fails_saying`, `torch_of_build`, `leave_out` and `sum_up`.
# $work is a folder that goes when the test ends.
# shellcheck shell=bash
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# check NAME COMMAND...: one test, passed when the command succeeds; the end of its output is shown where it does not.
check() {
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$name"
    tail -n 200 "$work/log" | sed 's/^/  /'
  fi
}

# fails_saying TEXT COMMAND...: the command fails, and says TEXT whatever the line breaks.
fails_saying() {
  local text=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "succeeded, and should have failed saying: $text"
    return 1
  fi
  grep -qF "$text" <<<"$(tr -s ' \n' ' ' <<<"$output")" || { echo "$output"; echo "does not say: $text"; return 1; }
}

# The folder of the LibTorch that the build was made with.
torch_of_build() {
  sed -n 's/^# It was built against LibTorch [^ ]* under \(.*\), and that is.*/\1/p' "$TRIAGE_BUILD/package/triageConfig.cmake"
}

# leave_out WHY: ends the test without a check.
leave_out() {
  echo "left out: $1"
  echo "0 passed, 0 failed"
  exit
}

# The last line, and the status of the test.
sum_up() {
  printf '%d passed, %d failed\n' "$passed" "$failed"
  ((failed == 0))
}
