"""Values, and what is done with them: nothing here knows a database or an app.

A map of the modules. What each is about is said in its first line.

Identities and vocabularies:
    ids, names, lengths, status

What somebody wrote or gave, checked:
    checks, readers, units

Policies and outcomes:
    retry, limits, outcome, failure

Arguments and results, as functions declare them and as JSON text:
    signature, layout, annotations, later, streams
    shape, fidelity, tags, codec, keepsake, jsontext

For those who act, and those who look:
    acting, resume_token, harmless

Help for Python itself:
    cached, forks, sameness
"""
