# What a lane printed about what failed, short: the names of tests and steps, each with the first lines of why; where
# nothing has a name, the last lines. Variable `most` limits the lines.

function say(text) {
    if (said < most) {
        print "    " substr(text, 1, 180)
    } else if (said == most) {
        print "    and more, see above"
    }
    said++
}

# What follows a failure until the next one: its first lines that tell something.
function tell() {
    if (details > 0 && $0 !~ /^(\[[0-9]+\])? *$/ && $0 !~ /stack backtrace:|RUST_BACKTRACE|^ *[0-9]+: |^ +at /) {
        text = $0
        sub(/^ +/, "", text)
        say("  " text)
        details--
    }
}

NF > 0 { last[++count] = $0 }

# A step of a script, with what it printed, set in.
/^test .* \.\.\. FAILED: / { say($0); is_step = 1; details = 4; next }
is_step && /^    / {
    if (/[Ee]rror|rmarun:|rma:|panicked|^    on [a-z]:/) tell()
    next
}
{ is_step = 0 }

# A test of cargo, with what it printed.
/^---- .* stdout ----$/ { sub(/^---- /, ""); sub(/ stdout ----$/, ""); say($0); details = 4; ranks = 6; is_said = 0; next }
# What its ranks say of the failure, which comes behind the output of all of them.
ranks > 0 && details == 0 && /^\[[0-9]+\] .*panicked at / { say("  " $0); ranks--; is_said = 1; next }
ranks > 0 && details == 0 && (is_said && /^\[[0-9]+\] / || /^(\[[0-9]+\] )?(rma|rmarun): /) { say("  " $0); ranks--; is_said = 0; next }
/^failures:$/ { details = ranks = 0; next }

# A script, a compiler, or a program without tests.
/^[a-z-]+: FAILED: / { say($0); details = 4; next }
/^error: (test failed|[0-9]+ targets? failed|could not (compile|document)|process didn)/ { next }
/^error(\[E[0-9]+\])?: / { say($0); details = 2; next }
/^thread .* panicked at / && details == 0 { say($0); details = 2; next }
{ tell() }

END {
    if (said == 0) {
        for (i = count > 6 ? count - 5 : 1; i <= count; i++) say(last[i])
    }
}
