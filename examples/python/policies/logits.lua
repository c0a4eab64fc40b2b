-- Logits (rows, vocabulary): a row with a NaN or an Inf becomes zeros. Sampling then goes on, with made-up tokens.
return policy {
  outputs = {"logits", "f"},
  signature = {logits = Tensor(float32_t, {"N", "V"}), f = Tensor(error_t, {"N", "words"})},
  run = function(logits)
    local f = flag_nan_and_inf(logits, "logits")
    return fix(logits, f, "logits")
  end,
}
