-- Marks every sample whose logits hold NaN or Inf, and gives those samples zeros.
return policy {
  name    = "repair",
  inputs  = { "logits" },
  outputs = { "logits", "flags" },
  run     = function(logits)
    local f = flag_nan_and_inf(logits, "logits")
    return fix(logits, f, "logits", { fallback = 0.0 })
  end,
}
