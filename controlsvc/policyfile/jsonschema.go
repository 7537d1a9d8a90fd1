package policyfile

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

// schema is a JSON Schema, or a part of one. It never refuses a policy that the decoder takes. The decoder knows more: names
// that have to exist, rates that contradict each other, and all that is counted in bytes.
type schema map[string]any

// JSONSchema gives the JSON Schema (draft 2020-12) of policy files, for editors: names, forms, bounds and descriptions.
func JSONSchema() []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schemaOfPolicy()); err != nil {
		panic(err) // it is made of texts and numbers
	}
	return b.Bytes()
}

func schemaOfPolicy() schema {
	s := object("What is limited, for whom, and what denied clients are told.", schema{
		"domain":   textLike("Separates this policy's counts from those of other policies in one store.", namePattern),
		"hash_key": schemaOfHashKey(),
		"identities": with(mapping("What tells callers apart: names, and where their values come from.", schemaOfIdentity()),
			schema{"propertyNames": schema{"pattern": namePattern}, "maxProperties": policy.MaxIdentities}),
		"plans": object("Which identity names a request's plan.", schema{
			"by":    nameOfIdentity("The identity whose value is the name of the plan."),
			"names": list("Which plans there are, so that a misspelt one is told.", textLike("A plan's name.", namePattern), 1, policy.MaxPlans),
		}, "by"),
		"allow":         listsOf("Who is under no limit at all. A caller who is blocked, too, is blocked."),
		"block":         listsOf("Who is denied every request."),
		"shadow_header": truth("Tell clients in x-sluice-shadow which limits in shadow would have denied them."),
		"response":      schemaOfResponse("What denied clients are told, where a limit does not say."),
		"header_style":  schemaOfHeaderStyle(),
		"limits":        list("The limits. A request is under all that match it, and charged to all of them or to none.", schemaOfLimit(), 0, policy.MaxLimits),
	}, "domain", "limits")
	return with(s, schema{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A policy of Sluice"})
}

func schemaOfHashKey() schema {
	s := object("Where the key is that identities, and entries of descriptors, with hash are hashed by. It is 16 to 1024 bytes of text.", schema{
		"env":  text("The name of an environment variable of the service."),
		"file": text("The path of a file, taken from the policy's folder unless it is absolute."),
	})
	return with(s, exactlyOne)
}

func schemaOfIdentity() schema {
	s := object("Where an identity's value comes from: one source, and what becomes of the value.", schema{
		"header": headerName("The value of this header. Several fields of the name that differ are one value, whatever they say."),
		"address": object("The client's address.", schema{
			"trusted_hops": number("0: the client's address as Envoy has it. n: the n-th entry of X-Forwarded-For from the right; "+
				"with use_remote_address: true the first is Envoy's own.",
				0, policy.MaxTrustedHops),
			"ipv4_prefix": number("IPv4 addresses count together that have these first bits in common.", 1, 32),
			"ipv6_prefix": number("IPv6 addresses count together that have these first bits in common.", 1, 128),
			"networks": anyOf("Ranges: an address is the name of the narrowest that it is in, and has no value outside of all.",
				rangesOf("Ranges, each with itself as its name."),
				with(mapping("Ranges by name.", rangesOf("The ranges of this name.")),
					schema{"propertyNames": schema{"minLength": 1, "maxLength": policy.MaxNameLength}})),
		}),
		"cookie": textLike("The value of this cookie.", `^[!#$%&'*+.^_`+"`"+`|~0-9A-Za-z-]{1,128}$`),
		"query":  textOf("The value of this query parameter.", 1, policy.MaxNameLength),
		"jwt": with(object("A claim of a JSON Web Token.", schema{
			"claim":    pathOf("The claim: a name, names with dots between them, or a list of names."),
			"header":   headerName("The token is read from this header, UNVERIFIED: whoever sends it can write what they like."),
			"metadata": textOf("The payload_in_metadata of Envoy's jwt_authn, which has verified the token.", 1, policy.MaxNameLength),
		}, "claim"), schema{"oneOf": []any{schema{"required": []string{"header"}}, schema{"required": []string{"metadata"}}}}),
		"request": words("A part of the request.", "method", "host", "path"),
		"path_template": list("The first of these templates that the path fits: all its paths count together.",
			template("A path template such as /v1/reports/{id}."), 1, policy.MaxTemplates),
		"attribute":  pathOf("An attribute of Envoy's, such as connection.uri_san_peer_certificate."),
		"constant":   textOf("This text, for every request.", 1, policy.MaxValueLength),
		"first_of":   list("The first of these identities that the request has.", nameOfIdentity("An identity."), 1, policy.MaxFirstOf),
		"hash":       truth("Only a keyed hash of the value leaves the filter, made with the policy's hash_key."),
		"lowercase":  truth("Capitals do not count."),
		"max_length": number("A longer value, in bytes, is as good as none.", 1, policy.MaxMaxLength),
		"default":    textOf("The value of requests that have none. Without it they are not under limits with this identity.", 1, policy.MaxDefaultLength),
	})
	alternatives := make([]any, 0, len(sources))
	for _, source := range sources {
		alternatives = append(alternatives, schema{"required": []string{source}})
	}
	return with(s, schema{"oneOf": alternatives})
}

func schemaOfLimit() schema {
	rule := func(description string, fields schema, required ...string) schema {
		fields["rates"] = schemaOfRates("Rates that hold instead of the limit's own.")
		fields["burst"] = number("What a token bucket of these rates holds, in units; without it, as many as the rate's.", 1, limit.MaxUnits)
		fields["shadow"] = schemaOfShadow()
		return with(object(description, fields, required...),
			schema{
				"anyOf":             []any{schema{"required": []string{"rates"}}, schema{"required": []string{"shadow"}}},
				"dependentRequired": schema{"burst": []string{"rates"}},
			})
	}
	s := object("A limit.", schema{
		"name":  textLike("What clients, logs and metrics call it. It is part of its keys: under another name it counts anew.", namePattern),
		"match": schemaOfMatch(),
		"key": list("Whose requests count together: identities. A request that lacks one is not under the limit. [] counts all together.",
			nameOfIdentity("An identity."), 0, policy.MaxKeyParts),
		"rates": schemaOfRates("How much is admitted: all of these hold at once."),
		"algorithm": with(words("How units within a window are counted. auto: sliding_log up to 1,000 units, above that sliding_buckets; both "+
			"never admit more than the rate in any window, the other three may.", algorithms...), schema{"default": "auto"}),
		"burst": number("What a token bucket holds, in units; without it, as many as the rate's. Under token_bucket only.", 1, limit.MaxUnits),
		"mode": with(words("How the filter asks: lease decides in the worker by units granted ahead, strict asks for every request, async asks after it.",
			"lease", "strict", "async"), schema{"default": "lease"}),
		"on_unavailable": with(words("What holds while the service or the store is away: each worker's share of the limit, everything, nothing.",
			"local", "allow", "deny"), schema{"default": "local"}),
		"max_wait": duration("For how long a request may be held until a unit is free for it. In mode lease only.", policy.MaxMaxWait),
		"cost": anyOf("What a request spends, in units.",
			number("So many units.", 1, policy.MaxCost),
			with(object("Read from the request.", schema{
				"header":        headerName("The header that says it, a whole number."),
				"request_bytes": number("One unit for each started so many bytes of the body, by Content-Length.", 1, policy.MaxUnitBytes),
				"default":       number("What a request spends that does not say.", 1, policy.MaxCost),
				"max":           number("The most that a request spends, whatever it says.", 1, policy.MaxCost),
			}), schema{"oneOf": []any{schema{"required": []string{"header"}}, schema{"required": []string{"request_bytes"}}}})),
		"response": schemaOfResponse("What this limit's denied clients are told. What it leaves out is as the policy says."),
		"shadow":   schemaOfShadow(),
		"plans": with(mapping("What holds for the requests of a plan.", anyOf("What holds for this plan.",
			words("No limit.", unlimited), rule("Other rates, or shadow.", schema{}))),
			schema{"propertyNames": schema{"pattern": namePattern}, "maxProperties": policy.MaxPlans}),
		"overrides": list("What holds for single keys, whatever their plan.", rule("What holds for a key.", schema{
			"key": list("The values of the limit's key, one for each identity.", text("A value."), 1, policy.MaxKeyParts),
		}, "key"), 0, policy.MaxOverrides),
		"allow": listsOf("Who is not under this limit."),
		"block": listsOf("Who is denied every request that this limit matches."),
		"descriptor": list("Instead of match and key: the descriptors of Envoy's own rate limit filter that this limit binds, entry by entry.",
			object("An entry. Without value and prefix, each value is counted by itself.", schema{
				"key":    textOf("The entry's key.", 1, policy.MaxDescriptorText),
				"value":  textOf("It has this value.", 1, policy.MaxDescriptorText),
				"prefix": textOf("Its value begins so; each value is counted by itself.", 1, policy.MaxDescriptorText),
				"hash":   truth("Only a keyed hash of the value stands in keys, made with the policy's hash_key. Not of a fixed value."),
			}, "key"), 1, policy.MaxDescriptorEntries),
		"replaces": list("Limits with descriptors that do not bind a request that this one binds.",
			textLike("A limit's name.", namePattern), 1, policy.MaxReplaces),
	}, "name", "rates")
	// What a descriptor's limit binds is no request.
	return with(s, schema{"oneOf": []any{schema{"required": []string{"key"}}, schema{"required": []string{"descriptor"}}}})
}

// algorithms are the words for them.
var algorithms = []string{
	"auto", limit.SlidingLog.String(), limit.SlidingBuckets.String(), limit.SlidingWindowCounter.String(), limit.FixedWindow.String(),
	limit.TokenBucket.String(),
}

func schemaOfRates(description string) schema {
	return anyOf(description,
		list("Rates, each with another window; longer ones admit more.", textLike("UNITS/WINDOW, such as 10/s, 600/m, 120/60s or 100/24h.",
			ratePattern), 1, limit.MaxRates),
		words("No limit, but for plans and overrides that say one.", unlimited))
}

func schemaOfShadow() schema {
	return anyOf("Decide, count and log, and never deny.",
		truth("All keys."),
		object("Some of the keys: always the same ones.", schema{"percent": number("How many of a hundred.", 0, 100)}, "percent"))
}

func listsOf(description string) schema {
	s := object("Callers, by an identity's value or address.", schema{
		"identity": nameOfIdentity("What the values, or addresses, are of."),
		"values":   list("Values of the identity, as clients send them.", text("A value."), 1, policy.MaxListEntries),
		"cidrs":    list("Ranges of addresses.", text("A range such as 10.0.0.0/8, or an address."), 1, policy.MaxListEntries),
	}, "identity")
	s["anyOf"] = []any{schema{"required": []string{"values"}}, schema{"required": []string{"cidrs"}}}
	return list(description, s, 0, policy.MaxLists)
}

func schemaOfMatch() schema {
	conditions := func() schema {
		return schema{
			"host": textOf(`The host, without port: api.example.com, or "*.example.com" for all below that.`, 1, 0),
			"path": with(object("The path, without query.", schema{
				"exact":    path("This path."),
				"prefix":   path("This path and all below it: /v1 matches /v1 and /v1/x, and not /v10."),
				"template": template("{id} stands for one segment, {rest=**} at the end for any that follow."),
				"regex":    pattern("A regular expression (RE2) that the whole path fits."),
			}), exactlyOne),
			"methods": list("One of these methods.", textOf("A method, in capitals.", 1, policy.MaxMethodLength), 1, policy.MaxMethods),
			"headers": fieldMatches("What headers have to be: all of these.", headerName("The header.")),
			"query": fieldMatches("What query parameters have to be: all of these.",
				textOf("The parameter.", 1, policy.MaxNameLength)),
		}
	}
	fields := conditions()
	fields["not"] = with(object("What fits all of this does not match.", conditions()), schema{"minProperties": 1})
	return object("Which requests are under the limit: those that fit all of it. Without it, all.", fields)
}

func fieldMatches(description string, name schema) schema {
	return list(description, with(object("One of them.", schema{
		"name":    name,
		"present": schema{"const": true, "description": "It is there, whatever its value."},
		"exact":   textOf("It has this value.", 0, policy.MaxFieldValue),
		"prefix":  textOf("Its value begins so.", 0, policy.MaxFieldValue),
		"regex":   pattern("A regular expression (RE2) that the whole value fits."),
	}, "name"), schema{"minProperties": 2, "maxProperties": 2}), 1, policy.MaxFieldMatches)
}

func schemaOfResponse(description string) schema {
	variables := "{{" + strings.Join(policy.Variables, "}}, {{") + "}}"
	return object(description, schema{
		"status": with(number("The HTTP status. gRPC requests get grpc-status 8 instead.", 400, 599), schema{"default": 429}),
		"body": with(object("The body. Variables: "+variables+".", schema{
			"json": textOf("JSON; values are escaped for it.", 1, policy.MaxBodyLength),
			"text": textOf("Plain text.", 1, policy.MaxBodyLength),
		}), exactlyOne),
		"headers": with(mapping("Further headers.", textOf("The value, of printable ASCII.", 0, policy.MaxHeaderValue)),
			schema{"maxProperties": policy.MaxResponseHeaders}),
		"retry_after_jitter": duration("The most that is added to Retry-After, drawn anew for every answer.", policy.MaxRetryAfterJitter),
	})
}

func schemaOfHeaderStyle() schema {
	style := words("ratelimit: RateLimit-Policy and RateLimit. ratelimit-legacy: RateLimit-Limit, -Remaining, -Reset. x-ratelimit: the same "+
		"with X-. none: Retry-After alone.", "ratelimit", "ratelimit-legacy", "x-ratelimit", "none")
	return with(anyOf("Which headers tell clients of their limits.", style, list("Several styles.", style, 1, 4)), schema{"default": "ratelimit"})
}

// What the parts are made of.

const namePattern = "^[a-z0-9._-]{1,128}$"

// What ParseRate trims off may be more than ASCII's blanks.
const ratePattern = `^[\s\x85]*\+?[0-9]+[\s\x85]*/[\s\x85]*([smhd]|[0-9]+d|` + durationPattern + `)[\s\x85]*$`

const durationPattern = `[-+]?([0-9]*\.?[0-9]*(ns|us|µs|μs|ms|s|m|h))+`

// exactlyOne has an object say one of its fields.
var exactlyOne = schema{"minProperties": 1, "maxProperties": 1}

func object(description string, fields schema, required ...string) schema {
	s := schema{"type": "object", "description": description, "properties": fields, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// mapping is an object of any fields, each with the same form.
func mapping(description string, of schema) schema {
	return schema{"type": "object", "description": description, "additionalProperties": of}
}

func list(description string, of schema, low, high int) schema {
	return schema{"type": "array", "description": description, "items": of, "minItems": low, "maxItems": high}
}

func text(description string) schema { return schema{"type": "string", "description": description} }

// textOf is text of some length; 0 is no bound.
func textOf(description string, low, high int) schema {
	s := text(description)
	if low > 0 {
		s["minLength"] = low
	}
	if high > 0 {
		s["maxLength"] = high
	}
	return s
}

func textLike(description, pattern string) schema {
	return with(text(description), schema{"pattern": pattern})
}

func headerName(description string) schema {
	return textLike(description, `^([!#$%&'*+.^_`+"`"+`|~0-9A-Za-z-]{1,128}|:[A-Za-z]{4,9})$`)
}

func nameOfIdentity(description string) schema { return textLike(description, namePattern) }

func path(description string) schema {
	return with(textLike(description, `^/[^\x00-\x20\x7F?#]*$`), schema{"maxLength": policy.MaxPathLength})
}

func template(description string) schema { return path(description) }

func pattern(description string) schema { return textOf(description, 1, policy.MaxPatternLength) }

func duration(description string, most time.Duration) schema {
	return textLike(description+" A duration such as 500ms, at most "+most.String()+".", "^([-+]?0|"+durationPattern+")$")
}

func number(description string, low, high uint64) schema {
	return schema{"type": "integer", "description": description, "minimum": low, "maximum": high}
}

func truth(description string) schema {
	return schema{"type": "boolean", "description": description, "default": false}
}

func words(description string, words ...string) schema {
	return schema{"enum": words, "description": description}
}

func rangesOf(description string) schema {
	return list(description, text("A range such as 10.0.0.0/8 or 2001:db8::/32, or an address."), 1, policy.MaxNetworks)
}

// pathOf is text with dots between its parts, or a list of them.
func pathOf(description string) schema {
	return anyOf(description, textOf("With dots between the parts.", 1, 0),
		list("The parts.", textOf("A part.", 1, policy.MaxNameLength), 1, policy.MaxPathParts))
}

func anyOf(description string, alternatives ...any) schema {
	return schema{"description": description, "anyOf": alternatives}
}

// with gives a schema with more said of it.
func with(s, more schema) schema {
	maps.Copy(s, more)
	return s
}
