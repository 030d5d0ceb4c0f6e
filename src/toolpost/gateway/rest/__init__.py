"""The REST door: tools, calls, approvals, jobs, artifacts and the audit as resources."""
