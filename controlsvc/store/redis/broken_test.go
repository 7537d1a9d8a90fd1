package redis

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice/shared/limit"
)

// brokenVariable has a replacement in the scripts' sources: what, an arrow, and what instead. Only TestBrokenScripts sets it.
const (
	brokenVariable = "SLUICE_BROKEN_SCRIPT"
	arrow          = " ==> "
)

// broken gives a script's source with what the environment says replaced.
func broken(source string) string {
	if before, after, found := strings.Cut(os.Getenv(brokenVariable), arrow); found {
		return strings.ReplaceAll(source, before, after)
	}
	return source
}

// breaks are rules that a script could lack. The suite has to notice each.
var breaks = map[limit.Algorithm][]string{
	limit.SlidingLog: {
		// What is the same for all algorithms.
		"local MARGIN = 10000000 ==> local MARGIN = 0",
		"w.minted + 1) ==> now)",
		"return n - n % of ==> return n",
		"if all and all <= now + horizon ==> if all and all < now + horizon",
		"not charge(w, name, stop, units) ==> not charge(w, name, start, units)",
		"if min > w.most then return nil end ==> ",
		"certain = math.max(certain, c) ==> certain = c",
		"units = math.min(units, free(w, start, stop, want)) ==> units = free(w, start, stop, want)",
		"for _, w in ipairs(windows) do settle( ==> for _, w in ipairs({windows[1]}) do settle(",
		"for _, w in ipairs(windows) do reset(w) end ==> ",
		"('%.0f', n) ==> ('%.5e', n)",
		// Its own.
		"'-inf', fmt(now - w.length), 'LIMIT' ==> '-inf', fmt(now - w.length + 1), 'LIMIT'",
		"'-inf', fmt(now - w.length), 'LIMIT' ==> '-inf', fmt(now - w.length - 1), 'LIMIT'",
		"if most then score = math.min(score, most) end ==> ",
		"if kept > 0 then charge ==> if false then charge",
		"uncharge(w, name, score, units) ==> ",
		"if not isLease(member) then sure = sure - gone end ==> sure = sure - gone",
		"if left >= enough or score > start - w.length ==> if left >= enough or score >= start - w.length",
		"w.latest = math.max(w.latest, score) ==> w.latest = score",
		"if leaves + MARGIN / 2 <= till then return till end ==> ",
		"return leaves + MARGIN ==> return leaves",
		"if w.size == 0 then w.fresh = true end ==> ",
		"(w.fresh or till > w.till) ==> w.fresh",
		"w.latest > now - w.length then ==> w.latest > now - w.length + 1 then",
		"if w.less then w.latest = newest(w) end ==> ",
		// Its quick way.
		"units > tonumber(limit) ==> units > tonumber(limit) + 1",
		"'-inf', now - length, 'LIMIT' ==> '-inf', now - length + 1, 'LIMIT'",
		"latest <= now - length then ==> latest <= now - length + 1 then",
		"if now > latest then latest = now end ==> latest = now",
		"if now > minted then minted = now end ==> ",
		"name .. nowText .. ==> name .. '0' ..",
		"and leased == 0) ==> )",
		"units, latest = 0, 0\n  else ==> latest = 0\n  else",
		"units = units - unitsOf(page[j]) ==> units = units - 1",
		"gone, lastGone = #page, #page - 1 ==> gone, lastGone = #page, #page",
		"if lives > till or size == 0 then ==> if lives > till then",
		"'KEEPTTL' ==> 'XX'",
	},
	limit.SlidingBuckets: {
		"math.ceil(score / w.width) ==> math.floor(score / w.width)",
		"math.ceil(score / w.width) ==> math.ceil(score / w.width) + 1",
		"math.floor(w.length / BUCKETS) ==> math.floor(w.length / BUCKETS) + 1",
		"local edge = math.floor((now - w.length) / w.width) ==> local edge = math.floor((now - w.length) / w.width) + 1",
		"return math.max(index, w.pruned + 1) ==> return index",
		"w.units > 0 and latest(w) <= edge ==> w.units > 0 and latest(w) <= edge + 1",
		"if index <= w.pruned then return false end ==> ",
		"add(w, index, -units, leased and -units or 0) ==> add(w, index, -units, 0)",
		"add(w, index, units, isLease(name) and units or 0) ==> add(w, index, units, 0)",
		"math.min(index, most or index) ==> index",
		"if kept > 0 then add(w, index, kept, 0) end ==> ",
		"sure - u + l ==> sure - u",
		"if index * w.width > start - w.length then break end ==> if index * w.width >= start - w.length then break end",
		"if leases then forget(w, edge * w.width) end ==> ",
		"then w.lives = leaves + MARGIN end ==> then w.lives = leaves end",
		"local prolonged = leaves + MARGIN / 2 > w.lives ==> local prolonged = w.lives == 0",
		"if saveGrants(w) or prolonged then ==> if saveGrants(w) then",
		"if saveGrants(w) or prolonged then ==> saveGrants(w)\n  if prolonged then",
		// How buckets are packed.
		"HEAD_SIZE + #w.buckets, -1) ==> HEAD_SIZE, -1)",
		"if not w.all and low == count(w) then ==> if false then",
		"if not fits(w, index, b.units, b.leased) then ==> if false then",
		"if leased > 0 then leased = units end ==> leased = 0",
		"b.units, b.leased = b.units + units, b.leased + leased ==> ",
		"if b.there ~= (b.units > 0) then w.whole = true end ==> ",
		"a.index > b.index ==> a.index < b.index",
		"w.till = math.max(w.till, from) ==> ",
		"edge < w.oldest then ==> edge <= w.oldest then",
		"w.oldest = bucket(w, count(w) - 1) ==> w.oldest = bucket(w, 0)",
		// How grants are.
		"redis.call('DEL', w.grants)\n  w.units ==> w.units",
		"if w.strict >= MOST_STRICT then ==> if false then",
		"text = string.sub(text, at) ==> text = string.sub(text, 1, at - 1)",
		"write(w, field, string.sub(text, 1, at - WHERE_SIZE - 1) .. string.sub(text, at + #grant)) ==> ",
		"at + NUMBERS_SIZE, next - 1), field) then ==> at + NUMBERS_SIZE, next - 1), field) and at == 1 then",
		"kept[#kept + 1] = string.sub(text, from)\n ==> ",
		"if string.sub(text, 1, #call) ~= call then return false end ==> ",
		"for level = 1, minted and LEVELS or 0 do ==> for level = 1, 1 do",
	},
	limit.FixedWindow: {
		"stop - start >= math.min(ttl, SHORTEST) ==> true",
		"return w.limit - unitsOfWindow(w, numberAt(w, start)) ==> return w.limit - unitsOfWindow(w, numberAt(w, now))",
		"firstFree(w, w.limit - units, certainOfWindow) ==> firstFree(w, w.limit - units, unitsOfWindow)",
		"(numberAt(w, start) + 1) * w.length - 1) ==> (numberAt(w, start) + 2) * w.length - 1)",
		"add(w, numberAt(w, score), -back ==> add(w, numberAt(w, now), -back",
		"write(w, field, string.sub(text, 1, at - WHERE_SIZE - 1) .. string.sub(text, at + #grant)) ==> ",
		"now = math.max(now, value) ==> now = now",
		"(latest + 2) * w.length - now ==> latest * w.length - now",
		"text = string.sub(text, at) ==> text = string.sub(text, 1, at - 1)",
		"if number < numberAt(w, now) - before then return end ==> number = math.max(number, numberAt(w, now) - before)",
		"while unitsIn(w, number) > room do ==> while unitsIn(w, number) >= room do",
		"redis.call('DEL', w.grants) ==> ",
		"if redis.call('PTTL', key) < millis then ==> if true then",
	},
	limit.SlidingWindowCounter: {
		"whole + (rest > 0 and 1 or 0) ==> whole",
		"(number + 1) * w.length - at, w.length) ==> at - number * w.length, w.length)",
		"if left >= earlier then return ==> if left >= 0 then return",
		"if time > 0 then ==> if time >= 0 then",
		"before = 1 ==> before = 0",
		"local back = units - kept ==> local back = units",
		"if a * b < 9007199254740992 then ==> if true then",
		"return (w.units[number] or 0) - (w.leased[number] or 0) ==> return w.units[number] or 0",
		"if #gone > 0 then\n ==> if false then\n",
	},
	limit.TokenBucket: {
		"if bucket.full < at then bucket.full, bucket.part = at, 0 end ==> if bucket.full < now then bucket.full, bucket.part = now, 0 end",
		"local longest = inflow(w, w.most - units) ==> local longest = inflow(w, w.most)",
		"bucket.full + time, bucket.part + part ==> bucket.full + time, bucket.part",
		"(w.part > part and 1 or 0) ==> 0",
		"math.ceil((rest + w.part) / w.length) ==> math.floor((rest + w.part) / w.length)",
		"w.full, w.part = w.full + 1, 0 ==> w.part = 0",
		"return w.most - usedAt(w, start) ==> return w.limit - usedAt(w, start)",
		"math.max(w.full, now) + w.length ==> now",
		"for j = #ARGV - 1, at, -2 ==> for j = at, #ARGV, 2",
		"while rest >= c do quotient ==> if rest >= c then quotient",
		"if a >= bit then ==> if a > bit then",
		// What comes back.
		"w.full, w.part = bucket.full, bucket.part\n ==> w.full = w.full - inflow(w, unitsOf(all[first]))\n",
		"until j == #all or j >= last and ==> until j == #all or",
		"struct.pack(BEFORE, stop, bucket.full, bucket.part) .. name ==> all[j]",
		"if name ~= grant then return stop, name end ==> if false then return stop, name end",
		"if kept == 0 then stop = math.min(stop, now - tonumber(ARGV[at])) end ==> ",
		"if units == 0 then return nil end ==> ",
		"return stop, 's::' .. fmt(units) ==> return stop, string.gsub(name, '%d+$', fmt(units))",
		"know(w, 'RPUSHX', 'r::' .. fmt(units), stop) ==> ",
		"-MOST_KNOWN / 2, -1) ==> 0, MOST_KNOWN / 2)",
		"w.limit = parts -- ==> w.another = true --",
		"w.another = true -- another ==> -- another",
		"redis.call('LTRIM', w.keys[2], 0, first - 2) ==> redis.call('LTRIM', w.keys[2], 0, first - 1)",
		"w.fresh = w.fresh or count == 1 ==> ",
	},
}

// TestBrokenScripts runs the suite on scripts that were broken on purpose, each in a process of its own, and wants it to fail:
// on every seventh, and on all with SLUICE_LONG=1.
func TestBrokenScripts(t *testing.T) {
	if os.Getenv(brokenVariable) != "" {
		t.Skip("this is such a process")
	}
	for algorithm, all := range breaks {
		source := newAlgorithms(asItIs)[algorithm].script.source
		if algorithm == limit.SlidingLog {
			source += accountSource + strictSource
		}
		for i, change := range all {
			before, _, _ := strings.Cut(change, arrow)
			if !strings.Contains(source, before) {
				t.Errorf("%v has no %q to break", algorithm, before)
				continue
			}
			if os.Getenv("SLUICE_LONG") == "" && i%7 != 0 {
				continue
			}
			t.Run(algorithm.String()+"/"+change, func(t *testing.T) {
				out, err := runBroken(t, algorithm, change)
				for try := 1; err == nil && try < 3; try++ { // what a property draws may not have been it
					out, err = runBroken(t, algorithm, change)
				}
				if err == nil {
					t.Errorf("the suite finds nothing wrong with it")
				} else if !strings.Contains(string(out), "--- FAIL: TestStoreWithClock/"+algorithm.String()) {
					t.Errorf("the suite did not run: %v\n%s", err, out)
				}
			})
		}
	}
}

// runBroken runs the suite of an algorithm once, and gives what it says.
func runBroken(t *testing.T, algorithm limit.Algorithm, change string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	suite := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestStoreWithClock$/^"+algorithm.String()+"$",
		"-test.failfast", "-rapid.shrinktime=0s", "-rapid.nofailfile")
	suite.Env = append(os.Environ(), brokenVariable+"="+change)
	return suite.CombinedOutput()
}
