-- Enumerations, the constants of the bit layout, and the global configuration.
local core = ...
local globals = _G

globals.Priority = core.read_only({CHRONO = 0, SEVERITY = 1, LOCATION = 2}, "Priority")
globals.Order = core.read_only({FIRST = 0, LAST = 1}, "Order")
globals.Dedupe = core.read_only({NONE = 0, CODE = 1, LOCATION = 2, UNIQUE = 3}, "Dedupe")

local Severity = {OK = 0, WARN = 1, ERROR = 2, CRITICAL = 3}
function Severity.name(severity) return core.severity_name(core.severity(severity, "Severity.name")) end
function Severity.is_critical(severity)
  return core.severity(severity, "Severity.is_critical") == Severity.CRITICAL
end
function Severity.is_error_or_worse(severity)
  return core.severity(severity, "Severity.is_error_or_worse") >= Severity.ERROR
end
function Severity.is_warn_or_worse(severity)
  return core.severity(severity, "Severity.is_warn_or_worse") >= Severity.WARN
end
globals.Severity = core.read_only(core.limited(Severity, "Severity."), "Severity")

local ErrorDomain = {NUMERIC = 0, INDEX = 1, QUALITY = 2, RUNTIME = 3}
function ErrorDomain.name(domain) return core.domain_name(core.domain(domain, "ErrorDomain.name")) end
globals.ErrorDomain = core.read_only(core.limited(ErrorDomain, "ErrorDomain."), "ErrorDomain")

local codes = {
  OK = 0, NAN = 1, INF = 2, OVERFLOW = 3,
  OUT_OF_BOUNDS = 5, NEGATIVE_IDX = 6, EMPTY_INPUT = 7,
  ZERO_OUTPUT = 9, CONSTANT_OUTPUT = 10, SATURATED = 11,
  FALLBACK_VALUE = 13, VALUE_CLAMPED = 14, UNKNOWN = 15,
  OOB = 5,
}
core.codes = codes

local ErrorCode = {UNDERFLOW = 3, INVALID_VALUE = 6, UNSTABLE = 11, CLAMPED = 14, SPARSE = 9}
for name, code in next, codes do
  ErrorCode[name] = code
end
function ErrorCode.name(code) return core.code_name(core.code(code, "ErrorCode.name")) end
function ErrorCode.default_severity(code)
  return core.default_severity(core.code(code, "ErrorCode.default_severity"))
end
function ErrorCode.domain(code) return core.code(code, "ErrorCode.domain") >> 2 end
function ErrorCode.subcode(code) return core.code(code, "ErrorCode.subcode") & 3 end
function ErrorCode.domain_name(code) return core.domain_name(core.code(code, "ErrorCode.domain_name") >> 2) end
function ErrorCode.in_domain(code, domain)
  return core.code(code, "ErrorCode.in_domain") >> 2 == core.domain(domain, "ErrorCode.in_domain")
end
function ErrorCode.is_critical(code)
  return core.default_severity(core.code(code, "ErrorCode.is_critical")) == Severity.CRITICAL
end
core.error_code = ErrorCode
globals.ErrorCode = core.read_only(core.limited(ErrorCode, "ErrorCode."), "ErrorCode")

for name, value in next, core.bit_layout do
  globals[name] = value
end

globals.ErrorConfig = core.ErrorConfig
globals.AccumulationConfig = core.AccumulationConfig
globals.CONFIG = core.global_config
globals.get_config = core.get_config
globals.set_config = core.set_config
