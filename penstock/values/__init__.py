"""Values and pure functions of values: nothing here knows a database or an app.

`ids` and `status` are the identities and vocabularies; `parse` reads options and settings; `retry`, `limits`,
`outcome` and `failure` are policies and outcomes of attempts; `typed_json/` turns arguments and results into JSON text
and back; `actor`, `resume_token` and `escape` serve people who act and look; `function_identity` and `fork_safety`
deal with Python itself.
"""
