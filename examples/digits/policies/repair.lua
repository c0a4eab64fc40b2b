-- Finds the images whose activations overflowed half precision, says where, and answers "no digit" for them: ten equal
-- logits instead of NaN.
return policy {
  name = "repair",
  inputs = { "x", "hidden", "logits", "w0", "b0", "w2", "b2", "w", "b" },
  outputs = { "logits", "f" },
  run = function(x, hidden, logits, w0, b0, w2, b2, w, b)
    local f = flag_nan_and_inf(hidden, "encoder.2")
    f = flag_nan_and_inf(logits, "head", f)
    return fix(logits, f, "head", { fallback = 0.0 })
  end,
}
