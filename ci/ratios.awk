# Of lines `QUANTITY ours|theirs VALUE`: the medians beside each other, their ratio, that of the best, and what it may be.
# Fails when a figure is missing, or the ratio of the best is beyond the gate, which is wider than what is wanted: what
# emulates a machine is as fast as it likes, and the best of a few rounds is what other programs have disturbed least, not
# what nothing has.

# sorted QUANTITY WHOSE: the values by size, into the array; how many there are.
function sorted(quantity, whose, values,    count, i, j, held) {
    count = split(figures[quantity, whose], values, " ")
    for (i = 2; i <= count; i++) {
        held = values[i] + 0
        for (j = i - 1; j > 0 && values[j] + 0 > held; j--) values[j + 1] = values[j]
        values[j + 1] = held
    }
    return count
}

function median(values, count) {
    return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
}

BEGIN {
    split("write_latency_us fetch_add_latency_us write_rate_mops", quantities, " ")
    limit["write_latency_us"] = 1.15
    limit["fetch_add_latency_us"] = 1.15
    limit["write_rate_mops"] = 0.9
    gate["write_latency_us"] = 1.5
    gate["fetch_add_latency_us"] = 1.5
    gate["write_rate_mops"] = 0.6
}

NF == 3 { figures[$1, $2] = figures[$1, $2] " " $3 }

END {
    printf "%-22s %10s %10s %7s %s\n", "medians", "rma-verbs", "perftest", "ratio", "of the best; wanted"
    for (i = 1; i in quantities; i++) {
        quantity = quantities[i]
        is_rate = quantity ~ /rate/
        our_count = sorted(quantity, "ours", our_values)
        their_count = sorted(quantity, "theirs", their_values)
        # The best of many is better than that of few: there are some of both, and not many more of one.
        if (our_count < 5 || their_count < 5 || our_count > 2 * their_count || their_count > 2 * our_count || our_values[1] <= 0 || their_values[1] <= 0) {
            printf "%-22s %d figures of ours and %d of perftest, of at least 5 rounds\n", quantity, our_count, their_count
            failed = 1
            continue
        }
        ours = median(our_values, our_count)
        theirs = median(their_values, their_count)
        best = is_rate ? our_values[our_count] / their_values[their_count] : our_values[1] / their_values[1]
        is_good = is_rate ? best >= limit[quantity] : best <= limit[quantity]
        is_beyond = is_rate ? best < gate[quantity] : best > gate[quantity]
        failed = failed || is_beyond
        printf "%-22s %10.3f %10.3f %7.2f %7.2f %s %.2f%s\n", quantity, ours, theirs, ours / theirs, best,
            is_rate ? "at least" : "at most", limit[quantity], is_beyond ? ", BEYOND THE GATE of " gate[quantity] : is_good ? "" : ", missed"
    }
    exit failed
}
