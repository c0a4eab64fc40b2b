-- Operators that look at sizes of 1: a graph that was captured with other sizes gives the shapes of the script.
local operators = {
  "x:squeeze()", "x:squeeze(0)", "x:squeeze(1)", "x:squeeze(-1)", "(x * 3):squeeze()", "x:sum(1, true):squeeze()",
  "x:squeeze():unsqueeze(0)", "x:squeeze():flatten()", "x:flatten()", "x:flatten(0, 1)", "x:flatten(1)",
  "x:unsqueeze(1)",
  "x:unsqueeze(1):squeeze(1)", "x:unsqueeze(-1):squeeze()", "x:reshape({-1})", "x:reshape({x:size(0), -1})",
  "x:view({-1, x:size(1)})", "x:t():squeeze()", "x:expand_as(x)", "x:sum(1):squeeze()", "x:mean(0):squeeze()",
  "x:amax(1, true):squeeze(1)", "x:select(1, 0)", "x:narrow(1, 0, 1):squeeze()", "torch.atleast_2d(x:squeeze())",
  "x:squeeze():clamp(-1, 1)", "torch.stack({x, x}):squeeze()", "x:t():reshape({-1})",
}
local shapes = {{3, 4}, {1, 4}, {3, 1}, {1, 1}, {2, 5}}

for _, operator in ipairs(operators) do
  test(operator, function()
    local fn = assert(load("local x = ... return (" .. operator .. ") * 2 + 1"))
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
      for _, first in ipairs(shapes) do
        local captured = triage.compile(fn, {backend = backend})
        captured(torch.zeros(first))
        for _, shape in ipairs(shapes) do
          local x = torch.randn(shape)
          eq(captured(x), fn(x))
        end
      end
    end
  end)
end
