-- What a flags tensor says, as Lua values. Each of these reads values, which one graph cannot hold.
local core = ...

_G.flags = core.strict(core.inspection, "flags")
_G.has_err = core.has_err
