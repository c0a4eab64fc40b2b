"""Packs flags vectors (JSON, format triage-flags-vectors-1) into flags.txt: python3 pack_flags_vectors.py IN.json flags.txt

One token list a line, numbers decimal unless said:
  case PRIORITY ORDER DEDUPE NUM_SLOTS CARRIER N
  codes LOCATION SEVERITY CODE...          push of a code a sample
  where LOCATION SEVERITY CODE MASK        push of one code; MASK as a string of 0 and 1
  scalar LOCATION SEVERITY CODE            push on all samples
  merge RECORD...                          one record a sample
  clear CODE
  = RECORD...                              the flags after the step above
  ? is_ok count max_severity has_code(set, hex) has_critical has_domain(set, hex) has_fallback code location severity   a sample
A RECORD is its slots, slot 0 first, four hex digits each, empty ones at the end left out; `-` is a record without errors.
"""
import json
import sys

SLOTS_PER_WORD = {"int64": 4, "float64": 4, "int32": 2, "float32": 2}


def record(words, carrier):
    per = SLOTS_PER_WORD[carrier]
    text = "".join(f"{w >> 16 * k & 0xFFFF:04x}" for w in words for k in range(per))
    while text.endswith("0000"):
        text = text[:-4]
    return text or "-"


def records(rows, carrier):
    return " ".join(record(row, carrier) for row in rows)


def bits(flags):
    return f"{sum(1 << i for i, f in enumerate(flags) if f):x}"


def step_line(step, carrier):
    place = f"{step.get('location')} {step.get('severity')}"
    match step["op"]:
        case "push_codes":
            return f"codes {place} " + " ".join(map(str, step["codes"]))
        case "push_where":
            return f"where {place} {step['code']} " + "".join("01"[m] for m in step["where"])
        case "push_scalar":
            return f"scalar {place} {step['code']}"
        case "merge":
            return "merge " + records(step["other"], carrier)
        case "clear":
            return f"clear {step['code']}"
    raise ValueError(step["op"])


def main():
    data = json.load(open(sys.argv[1]))
    assert data["format"] == "triage-flags-vectors-1"
    with open(sys.argv[2], "w") as out:
        for case in data["cases"]:
            c = case["config"]
            carrier = c["carrier"]
            print("case", c["priority"], c["order"], c["dedupe"], c["num_slots"], carrier, case["n"], file=out)
            for step in case["steps"]:
                print(step_line(step, carrier), file=out)
                print("=", records(step["flags"], carrier), file=out)
            for q in case["queries"]:
                print("?", int(q["is_ok"]), q["count_errors"], q["max_severity"], bits(q["has_code"]), int(q["has_critical"]),
                      bits(q["has_domain"]), int(q["has_fallback"]), *q["first"], file=out)


main()
