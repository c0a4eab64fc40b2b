-- Enumerations, the constants of the bit layout, and the global configuration.
local core = ...
local globals = _G

globals.Priority = core.read_only({CHRONO = 0, SEVERITY = 1, LOCATION = 2}, "Priority")
globals.Order = core.read_only({FIRST = 0, LAST = 1}, "Order")
globals.Dedupe = core.read_only({NONE = 0, CODE = 1, LOCATION = 2, UNIQUE = 3}, "Dedupe")

local Severity = {OK = 0, WARN = 1, ERROR = 2, CRITICAL = 3}
Severity.name = core.severity_name
function Severity.is_critical(severity) return severity == Severity.CRITICAL end
function Severity.is_error_or_worse(severity) return severity >= Severity.ERROR end
function Severity.is_warn_or_worse(severity) return severity >= Severity.WARN end
globals.Severity = core.read_only(Severity, "Severity")

local ErrorDomain = {NUMERIC = 0, INDEX = 1, QUALITY = 2, RUNTIME = 3}
ErrorDomain.name = core.domain_name
globals.ErrorDomain = core.read_only(ErrorDomain, "ErrorDomain")

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
ErrorCode.name = core.code_name
ErrorCode.default_severity = core.default_severity
function ErrorCode.domain(code) return core.code(code, "ErrorCode.domain") >> 2 end
function ErrorCode.subcode(code) return core.code(code, "ErrorCode.subcode") & 3 end
function ErrorCode.domain_name(code) return core.domain_name(core.code(code, "ErrorCode.domain_name") >> 2) end
function ErrorCode.in_domain(code, domain) return core.code(code, "ErrorCode.in_domain") >> 2 == domain end
function ErrorCode.is_critical(code) return core.default_severity(code) == Severity.CRITICAL end
globals.ErrorCode = core.read_only(ErrorCode, "ErrorCode")

for name, value in next, core.bit_layout do
  globals[name] = value
end

globals.ErrorConfig = core.ErrorConfig
globals.AccumulationConfig = core.AccumulationConfig
globals.CONFIG = core.global_config
globals.get_config = core.get_config
globals.set_config = core.set_config
