-- The registry of locations.
local core = ...

_G.ErrorLocation = core.read_only(core.locations, "ErrorLocation")
