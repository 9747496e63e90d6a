"""Jobs in SQL: each verb is a plain function of an open transaction."""
