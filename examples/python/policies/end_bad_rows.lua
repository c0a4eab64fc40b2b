-- Such a row can only choose the end token: a request whose logits are lost ends, and streams no made-up tokens.
return policy {
  outputs = {"logits", "f"},
  signature = {logits = Tensor(float32_t, {"N", "V"}), f = Tensor(error_t, {"N", "words"})},
  params = {end_token = 1},
  run = function(logits, p)
    local f = flag_nan_and_inf(logits, "logits")
    local is_end = torch.arange(logits:size(-1)):eq(p.end_token)
    return fix(logits, f, "logits", {fallback = torch.where(is_end, 0.0, -math.huge)})
  end,
}
