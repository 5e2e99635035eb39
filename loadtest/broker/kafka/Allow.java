// Grants rights: `java -cp LIBS Allow.java BROKERS (PRINCIPAL OPERATION RESOURCE NAME)...`, where a
// name that ends with * is a prefix.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

public final class Allow {
    public static void main(String[] args) throws Exception {
        List<AclBinding> rights = new ArrayList<>();
        for (int i = 1; i + 3 < args.length; i += 4) {
            String name = args[i + 3];
            boolean prefix = name.endsWith("*");
            ResourcePattern pattern = new ResourcePattern(
                ResourceType.valueOf(args[i + 2]),
                prefix ? name.substring(0, name.length() - 1) : name,
                prefix ? PatternType.PREFIXED : PatternType.LITERAL);
            AccessControlEntry entry = new AccessControlEntry(
                args[i], "*", AclOperation.valueOf(args[i + 1]), AclPermissionType.ALLOW);
            rights.add(new AclBinding(pattern, entry));
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createAcls(rights).all().get();
        }
    }
}
