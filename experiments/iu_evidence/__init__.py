"""The papers' claims on real reports of IU X-Ray, read through noisy evidence."""
