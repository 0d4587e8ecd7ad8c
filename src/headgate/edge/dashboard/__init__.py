"""The dashboard: pages for a browser, of files in the package. All they show and change goes through the admin API."""
