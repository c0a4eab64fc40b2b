// What the rewriter makes of each construct. The text in front of the source and behind it is left out here.
#include <doctest/doctest.h>

#include <algorithm>

#include "bindings/lua/rewriter/rewriter.h"

namespace triage::lua::rewriter {
namespace {

const std::string kHead = "return function(...)if _ENV then end ", kTail = "\nend";

std::string rewritten(const std::string& source, bool policy = true) {
  const std::string text = rewrite(source, "=test", {policy});
  const size_t head = text.find(kHead);
  REQUIRE(head != std::string::npos);
  REQUIRE(text.substr(text.size() - kTail.size()) == kTail);
  return text.substr(head + kHead.size(), text.size() - head - kHead.size() - kTail.size());
}

struct Golden {
  const char* source;
  const char* rewritten;
};

/// Runs of spaces count as one: edits pad with them so that names do not run together.
std::string squeeze(std::string text) {
  text.erase(std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }), text.end());
  return text;
}

void check_all(std::initializer_list<Golden> cases) {
  for (const Golden& golden : cases) {
    const std::string source = golden.source, expected = golden.rewritten;
    CAPTURE(source);
    CHECK(squeeze(rewritten(source)) == squeeze(expected));
  }
}

}  // namespace

TEST_CASE("the chunk takes its intrinsics and returns the main function") {
  const std::string text = rewrite("return 1", "=test");
  std::string names;
  for (const std::string& name : intrinsics()) names += (names.empty() ? "" : ",") + name;
  CHECK(text == "local " + names + "=...;return function(...)if _ENV then end return 1\nend");
}

TEST_CASE("comparisons") {
  check_all(
      {{"x = a < b", " __triage_touch(\"x\",1);x =  __triage_lt(a , b,7) __triage_touch();"},
       {"return a <= b", "return  ( __triage_le(a , b,10))"},
       {"return a > b, a >= b", "return  __triage_gt(a , b,10),  __triage_ge(a , b,17)"},
       {"return a == b == c", "return  ( __triage_eq( __triage_eq(a , b,10) , c,15,false,\"(a == b) & (b == c)\"))"},
       {"f(a ~= 1)", "f( __triage_ne(a , 1,5))"},
       {"return a == nil, nil ~= a, a == 'x'", "return a == nil, nil ~= a, a == 'x'"},
       {"return (a<b)", "return  ( __triage_lt(a,b,10))"},
       {"return a + 1 < b * 2 and c", "return  __triage_lt(a + 1 , b * 2,14,true) and c"},
       {"return a\n<\nb", "return  ( __triage_lt(a\n,\nb,131073))"}});
}

TEST_CASE("conditions") {
  check_all({{"if a then end", "if  __triage_test(a ,4)then end"},
             {"if a.b[1] then elseif f() then end",
              "if  __triage_test(a.b[1] ,4)then elseif  __triage_test(f() ,23,true)then end"},
             {"while a<b do end", "while  __triage_lt(a,b,8,true) do end"},
             {"repeat local a until a", "repeat local a until  __triage_test(a,22)"},
             {"return a and b", "return  __triage_test(a ,8)and b"},
             {"return a and b or c", "return  __triage_test(a ,8)and  __triage_test(b,14) or c"},
             {"if (a or b) and not c then end",
              "if ( __triage_test(a ,5)or  __triage_test(b,10)) and not  __triage_test(c,21) then end"},
             {"return not(a)", "return not( __triage_test(a,12))"},
             {"return not not a", "return not not  __triage_test(a,16)"},
             {"if nil or true and 1 and 'x' and {} == nil then end",
              "if nil or true and 1 and 'x' and  __triage_table({}) == nil then end"},
             {"return a + b and -c or ...", "return  __triage_test(a + b ,8,true)and  __triage_test(-c,18) or ..."},
             {"return a == nil and b", "return a == nil and b"},
             {"return a .. b and c", "return  __triage_concat(a , b,10,\"global 'a'\\010global 'b'\") and c"}});
}

TEST_CASE("bounds of loops, and keys") {
  check_all({{"for i = 1, n do end", "for i = 1,  __triage_plain(n) do end"},
             {"for i = n - 1, -n, -1 do end", "for i =  __triage_plain(n - 1),  __triage_plain(-n), -1 do end"},
             {"for k in n do end", "for k in __triage_iterate(n) do end"},
             {"return t[n], t.n, t['n'], t[1]", "return t[ __triage_plain(n,t)], t.n, t['n'], t[1]"},
             {"return {[n] = n, n}", "return ( __triage_table({[ __triage_key(n)] = n, n}))"}});
}

TEST_CASE("what a policy closes, and nothing else does") {
  check_all(
      {{"local a <close>, b = f()", "local a <const>, b = f() local __triage_held<close> =__triage_close(a,\"a\")"},
       {"for k, v in next, {1} do end", "for k, v in __triage_iterate(next, __triage_table({1})) do end"}});
  const std::string trusted = "local a <close> = f() for k in n do end";
  CHECK(rewrite(trusted, "=t", {/*policy=*/false}).find(trusted) != std::string::npos);
}

TEST_CASE("concatenation") {
  check_all(
      {{"return 'a' .. 1 .. 2.5", "return  ( __triage_concat('a' , 1 , 2.5,17,\"\"))"},
       {"local a return a.x .. a[1] .. a[i]",
        "local a return  ( __triage_concat(a.x , a[1] , a[ __triage_plain(i,a)],28,\"field 'x'\\010field 'integer "
        "index'\\010field "
        "'?'\"))"},
       {"return a .. (b .. c)",
        "return  ( __triage_concat(a , ( __triage_concat(b , c,16,\"global 'b'\\010global 'c'\")),10,\"global "
        "'a'\\010\"))"}});
}

TEST_CASE("functions") {
  check_all(
      {{"local f = function(a) end", "local f =  __triage_fn(function(a) end,1)"},
       {"local function f() return f end", "local function f() return f end __triage_fn(f,1);"},
       {"function f() end", " __triage_touch(\"f\",10);function f() end __triage_fn(f,1);"},
       {"function t.a.f(x) end", "  __triage_write(t.a,10,\"field 'a'\",true).f = __triage_fn(function(x) end,1)"},
       {"function t:m() end", " __triage_write(t,10);  t.m = __triage_fn(function(self) end,1)"},
       {"function t:m(a, ...) end", " __triage_write(t,10);  t.m = __triage_fn(function(self,a, ...) end,1)"},
       {"return function() return function() end end",
        "return  ( __triage_fn(function() return  ( __triage_fn(function() end,2)) end,1))"},
       {"f{1} g'x' h[[y]] t:m{2}", "f ( __triage_table({1})) g'x' h[[y]] t:m ( __triage_table({2}))"}});
}

TEST_CASE("writes") {
  check_all({{"local a a = 1", "local a a = 1"},
             {"local a local function f() return a end a = 1",
              "local a local function f() return a end __triage_fn(f,1);  __triage_touch();a = 1"},
             {"local a local function f() a = 1 end",
              "local a local function f()  __triage_touch(\"a\",28,1);a = 1 end __triage_fn(f,1);"},
             {"local a return function() return function() a = 1 end end",
              "local a return  ( __triage_fn(function() return  ( __triage_fn(function()  __triage_touch(\"a\",45,2);a "
              "= 1 end,2)) end,1))"},
             {"g, h = h, g", " __triage_touch(\"g\",1);__triage_touch(\"h\",4);g, h = h, g"},
             {"t.x = 1", " __triage_write(t,1);t.x = 1"},
             {"t[1], t[2] = t[2], t[1]", " __triage_write(t,1);t[1], t[2] = t[2], t[1] __triage_touch();"},
             {"t.u.x = 1", " __triage_write(t.u,1,\"field 'u'\").x = 1"},
             {"f().x, y = 1", " __triage_touch(\"y\",8); __triage_write(f(),1,\"\").x, y = 1 __triage_touch();"},
             {"local t = {1, {2}}", "local t =  __triage_table({1,  __triage_table({2})})"},
             {"t.a\n.b\n= 5", " __triage_write(t.a,1,\"field 'a'\")\n.b\n= 5"}});
}

TEST_CASE("a statement that begins with a parenthesis stays a statement of its own") {
  check_all({{"local t = {}\n(f or g)(1)", "local t =  __triage_table({})\n ;( __triage_test(f ,2)or g)(1)"},
             {"x = 1 < 2 (f)()", " __triage_touch(\"x\",1);x =  __triage_lt(1 , 2,7) __triage_touch();  ;(f)()"}});
}

TEST_CASE("natural Lua") {
  const auto natural = [](const std::string& source) {
    const std::string text = rewritten("--!tensor\n" + source);
    return squeeze(text.substr(text.find('\n') + 1));
  };
  CHECK(
      natural("local z if m then z = a else z = b end") ==
      squeeze("local z do local __triage_k<close> =__triage_chain(\"z\",2)::__triage_again_0::if "
              "__triage_k[1]==1 or __triage_k[1]==0 and __triage_decide(__triage_k,1,m ) then z = a elseif "
              "__triage_k[1]==2 or __triage_k[1]==0 and __triage_decide(__triage_k,2,true) then z = b end if "
              "__triage_k[2] then z=__triage_next(__triage_k,z) if __triage_k[1]>0 then goto __triage_again_0 end end "
              "end"));
  CHECK(natural("if x == nil then y() end") == "if x == nil then y() end");
  CHECK(natural("return a and b and c") ==
        squeeze(" local __triage_t={};return  ( __triage_join(__triage_t,1, __triage_keep(__triage_t,1,a ,true)and  "
                "__triage_keep(__triage_t,1,b )and c))"));
  CHECK(natural("return a == nil and b") == "return (a == nil and b)");
  CHECK(natural("return not a") == squeeze("return  ( __triage_not( a))"));
  CHECK(natural("while a < b do end") == squeeze("while  __triage_loop( __triage_lt(a , b,9),\"while\",7) do end"));
}

TEST_CASE("natural Lua: exits say how many ifs they leave") {
  const auto leaves = [](const std::string& source) {
    const std::string text = rewritten("--!tensor\n" + source);
    const size_t at = text.find("__triage_leave(");
    return at == std::string::npos ? std::string() : text.substr(at, text.find(';', at) - at);
  };
  CHECK(leaves("if a then return end").find("(__triage_k,1,\"return\"") != std::string::npos);
  CHECK(leaves("if a then while b do if c then break end end end").find("(__triage_k,1,\"break\"") !=
        std::string::npos);
  CHECK(leaves("while b do if a then if c then break end end end").find("(__triage_k,2,\"break\"") !=
        std::string::npos);
  CHECK(leaves("if a then while b do break end end") == "");
  CHECK(leaves("if a then goto l ::l:: end") == "");
  CHECK(leaves("if a then goto l end ::l::").find("(__triage_k,1,\"goto\"") != std::string::npos);
  CHECK(leaves("if a then local function f() return 1 end end") == "");
}

TEST_CASE("a byte order mark and a first line with # are left out") {
  CHECK(rewritten("\xEF\xBB\xBF#!/usr/bin/triage exec\nreturn 1") == "\nreturn 1");
  CHECK(rewritten("#!x") == "");
  CHECK_THROWS_AS(rewrite("# no file", "=text"), SyntaxError);
  CHECK(rewrite("# a file\nreturn 1", "@file").find("end \nreturn 1") != std::string::npos);
}

TEST_CASE("no token changes its line") {
  const std::string source = "local a = b --[[\n\n]] < c\n.. 'x\\\ny'\nfunction t.u\n:m()\n return {\n}\nend -- end";
  const std::string text = rewrite(source, "=test");
  CHECK(std::count(text.begin(), text.end(), '\n') == std::count(source.begin(), source.end(), '\n') + 1);
}

}  // namespace triage::lua::rewriter
