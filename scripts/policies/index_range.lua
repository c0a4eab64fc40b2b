-- Indices out of range become a padding index before they reach an embedding, which would raise for the whole batch.
-- Use it in front of embedding, gather and one_hot, when ids come from outside.
-- Returns the indices as int64, all within 0 .. size - 1, and the flags: NEGATIVE_IDX, OUT_OF_BOUNDS, for both
-- FALLBACK_VALUE. A padding outside of the embedding is moved to its nearest row. One without rows has no index: all
-- are flagged, and 0.
-- Samples: each on its own.

local function any(mask) return mask:unsqueeze(-1):flatten(1):any(-1) end

return policy {
  name = "index_range",
  inputs = {"ids"},
  signature = {ids = Tensor(integer_t, {"N", "..."})},
  outputs = {"ids", "f"},
  params = {
    size = {default = 50000, min = 0, help = "rows of the embedding"},
    padding = {default = 0, help = "the index that stands for nothing"},
  },
  fullgraph = true,
  run = function(ids, p)
    ids = ids:to(torch.int64)   -- a smaller dtype may not hold the size
    local below, beyond = ids < 0, ids >= p.size
    local f = push(err.new(ids), err.NEGATIVE_IDX, "index_range", {where = any(below)})
    f = push(f, err.OUT_OF_BOUNDS, "index_range", {where = any(beyond)})
    f = push(f, err.FALLBACK_VALUE, "index_range", {where = any(below | beyond)})
    return torch.where(below | beyond, p.padding, ids):clamp({max = p.size - 1}):clamp({min = 0}), f
  end,
  verify = true,
  tests = {
    {
      name = "indices out of range become padding",
      args = function() return torch.tensor({{1, 49999}, {-1, 7}, {3, 50000}, {-5, 90000}}) end,
      check = function(ids, f)
        return ids:equal(torch.tensor({{1, 49999}, {0, 7}, {3, 0}, {0, 0}}))
          and err.has_code(f, err.NEGATIVE_IDX):equal(torch.tensor({false, true, false, true}))
          and err.has_code(f, err.OUT_OF_BOUNDS):equal(torch.tensor({false, false, true, true}))
      end,
    },
    {
      name = "ids of a small dtype are compared with sizes that the dtype cannot hold",
      args = function() return torch.tensor({{1, 3}, {-1, 7}}, {dtype = torch.int16}) end,
      check = function(ids, f)
        return ids:equal(torch.tensor({{1, 3}, {0, 7}})) and err.is_err(f):equal(torch.tensor({false, true}))
      end,
    },
    {
      name = "uint8",
      params = {size = 200, padding = 0},
      args = function() return torch.tensor({{199, 3}, {201, 7}}, {dtype = torch.uint8}) end,
      check = function(ids, f)
        return ids:equal(torch.tensor({{199, 3}, {0, 7}})) and err.is_err(f):equal(torch.tensor({false, true}))
      end,
    },
    {
      name = "a smaller table, another padding",
      params = {size = 4, padding = 3},
      args = function() return torch.tensor({{3, 1}, {4, 0}, {-1, 2}}) end,
      check = function(ids, f)
        return ids:equal(torch.tensor({{3, 1}, {3, 0}, {3, 2}}))
          and err.is_err(f):equal(torch.tensor({false, true, true}))
      end,
    },
    {
      name = "a padding beyond the table",
      params = {size = 2, padding = 5},
      args = function() return torch.tensor({{-1, 3}, {0, 1}}) end,
      check = function(ids, f)
        return ids:equal(torch.tensor({{1, 1}, {0, 1}})) and err.is_err(f):equal(torch.tensor({true, false}))
      end,
    },
    {
      name = "a padding before the table",
      params = {padding = -1},
      args = function() return torch.tensor({{-1, 3}}) end,
      check = function(ids) return ids:equal(torch.tensor({{0, 3}})) end,
    },
    {
      name = "a table without rows",
      params = {size = 0},
      args = function() return torch.tensor({{0, 1}, {-1, 2}}) end,
      check = function(ids, f) return ids:eq(0):all() and err.is_err(f):all() end,
    },
  },
}
