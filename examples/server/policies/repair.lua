-- A sample whose logits are not finite gets equal ones, and a record of what was wrong.
return policy {
  inputs = {"logits"},
  outputs = {"logits", "f"},
  on_error = "pass_through",
  run = function(logits)
    local f = flag_nan_and_inf(logits, "logits")
    return fix(logits, f, "logits", {fallback = 0.0})
  end,
  tests = {
    {
      name = "repairs a bad sample and leaves the others",
      args = function() return torch.tensor({{1.0, 0.0 / 0.0}, {2.0, 3.0}}) end,
      check = function(logits, f)
        return logits:equal(torch.tensor({{0.0, 0.0}, {2.0, 3.0}})) and err.is_err(f):equal(torch.tensor({true, false}))
      end,
    },
  },
}
