# shellcheck shell=bash
# What scripts share that run steps with names: which are wanted, how each went, what it printed, and the end. To be
# sourced; then `begin_steps`, the steps, `end_steps`. A script says by these functions how it differs:
#
#   run COMMAND...    runs a step's command, with its output in $directory/out and its errors in $directory/err
#   settle NAME       whether the step has left nothing behind; else it has said so by `fail`
#   clean_up_own      at the end, in any case

suite=
directory=
wanted=()
ran=()
passed=0
failed=()
guardian=

# begin_steps SUITE STEP...: the steps of this suite, all or only these.
begin_steps() {
    suite="$1"
    shift
    wanted=("$@")
    directory="$(mktemp -d)"
    # Daemons check that nobody else may write where they do.
    chmod 755 "$directory"
    : >"$directory/out"
    : >"$directory/err"
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

clean_up() {
    local status="$?"
    trap - EXIT
    unguard
    clean_up_own
    rm -rf "$directory"
    exit "$status"
}

# install_missing: reads lines of a command and the Debian package that has it.
install_missing() {
    local missing=() command package
    while read -r command package; do
        command -v "$command" >/dev/null || missing+=("$package")
    done
    if ((${#missing[@]} > 0)); then
        echo "$suite: installing ${missing[*]}"
        apt-get update -q
        # Debian would start daemons of its own at once.
        env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
            apt-get install -q -y --no-install-recommends "${missing[@]}"
    fi
}

# stage TEXT: where a set-up stands, for the message of `guard`.
stage() { printf '%s\n' "$1" >"$directory/stage"; }

# guard SECONDS: ends this script unless `unguard` comes before, and says at which stage it stood.
guard() {
    (
        # It is not this one's to clean up.
        trap - EXIT
        sleep "$1" &
        trap 'kill "$!"; exit 0' TERM
        wait "$!"
        printf '%s: FAILED: not ready after %d s; it stood at: %s\n' "$suite" "$1" "$(<"$directory/stage")"
        ps -o pid,etime,args --ppid "$$" || true
        for child in $(pgrep -P "$$"); do
            [[ "$child" == "$BASHPID" ]] || kill -KILL "$child" || true
        done
        kill -TERM "$$"
    ) &
    guardian="$!"
}

unguard() {
    [[ -n "$guardian" ]] || return 0
    kill "$guardian" 2>/dev/null || true
    wait "$guardian" 2>/dev/null || true
    guardian=
}

is_wanted() {
    local name
    for name in "${wanted[@]-$1}"; do
        [[ "$name" == "$1" ]] || continue
        ran+=("$1")
        return 0
    done
    return 1
}

now_ms() { date +%s%3N; }

pass() {
    printf 'test %s %s ... ok (%d ms)\n' "$suite" "$1" "$2"
    passed=$((passed + 1))
}

# fail NAME WHY: a step has failed; shows what it printed.
fail() {
    printf 'test %s %s ... FAILED: %s\n' "$suite" "$1" "$2"
    head --quiet --bytes=20000 "$directory/out" "$directory/err" | sed 's/^/    /'
    failed+=("$1")
}

# within SECONDS COMMAND...: whether the command succeeds in this time; it is tried again and again.
within() {
    local ends=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < ends)) || return 1
        sleep 0.1
    done
}

# judge NAME STATUS TEXT GOT WHAT: whether a command ended with this status (`+` for any but 0), and its output has this
# text in it; fails the step otherwise.
judge() {
    local name="$1" expected="$2" text="$3" status="$4" what="$5"
    if [[ "$expected" != "$status" && ! ("$expected" == + && "$status" != 0 && "$status" != 124) ]]; then
        fail "$name" "status $status and not $expected of: $what"
    elif [[ -n "$text" ]] && ! grep -qF -- "$text" "$directory/out" "$directory/err"; then
        fail "$name" "no '$text' from: $what"
    else
        return 0
    fi
    return 1
}

# step NAME FUNCTION ARGUMENT...: a step. The function is given the name and the arguments; it fails the step, or
# returns 0, and then `settle` has the last word.
step() {
    local name="$1" function="$2" begun
    shift 2
    is_wanted "$name" || return 0
    begun="$(now_ms)"
    if "$function" "$name" "$@" && settle "$name"; then
        pass "$name" "$(($(now_ms) - begun))"
    fi
}

# says NAME STATUS TEXT COMMAND...: a step that is a command, judged by status and text.
says() {
    local name="$1"
    shift
    step "$name" run_and_judge "$@"
}

run_and_judge() {
    local name="$1" expected="$2" text="$3" status=0
    shift 3
    run "$@" || status="$?"
    judge "$name" "$expected" "$text" "$status" "$*"
}

# The result of all steps; exits with 10 when some have failed.
end_steps() {
    local name unknown=()
    for name in "${wanted[@]}"; do
        [[ " ${ran[*]} " == *" $name "* ]] || unknown+=("$name")
    done
    if ((${#unknown[@]} > 0)); then
        echo "$suite: there is no step '${unknown[*]}'" >&2
        exit 2
    fi
    printf '\ntest result: %s. %d passed; %d failed; in %d s\n' \
        "$( ((${#failed[@]} == 0)) && echo ok || echo FAILED)" "$passed" "${#failed[@]}" "$SECONDS"
    # Who started this script counts that line, and not the script as well.
    ((${#failed[@]} == 0)) || exit 10
}
