-- A role for KEDA's scaler. Its settings keep the plan of the query: the queue is read in the order of its index, and no
-- more of it than the cap, whatever the statistics say at that moment.
CREATE ROLE penstock_scaler LOGIN;  -- and a password, or a certificate
GRANT SELECT ON penstock_availabilities, penstock_claims, penstock_jobs TO penstock_scaler;
ALTER ROLE penstock_scaler SET enable_bitmapscan = off;
ALTER ROLE penstock_scaler SET enable_seqscan = off;
ALTER ROLE penstock_scaler SET enable_sort = off;
